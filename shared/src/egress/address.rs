//! Which addresses are of the public internet. Everything else is somebody's own network, this machine, or nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not the public internet, by first address and bits.
const NOT_PUBLIC_4: &[([u8; 4], u8)] = &[
    ([0, 0, 0, 0], 8),       // this network
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // carrier-grade NAT, metadata of some clouds
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local, metadata of most clouds
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // relays of 6to4
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 3),     // multicast, reserved, broadcast
];

/// Whether the first `bits` of both are the same; addresses of different families never are.
pub(super) fn is_in(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (a, b, width) = match (plain(ip), plain(network)) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let drop = u32::from(width - bits.min(width));
    // All bits of a shift would be too many for the operator.
    drop >= 128 || a >> drop == b >> drop
}

/// An IPv4 address written as IPv6 is the IPv4 address.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
    }
}

/// Whether an address is of the public internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match plain(ip) {
        IpAddr::V4(v4) => is_public_4(v4),
        IpAddr::V6(v6) => is_public_6(v6),
    }
}

fn is_public_4(v4: Ipv4Addr) -> bool {
    !NOT_PUBLIC_4.iter().any(|(network, bits)| is_in(v4.into(), Ipv4Addr::from(*network).into(), *bits))
}

fn is_public_6(v6: Ipv6Addr) -> bool {
    let part = v6.segments();
    // NAT64 and 6to4 carry an IPv4 address, which is where the call ends.
    let carried = |high: u16, low: u16| is_public_4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match part {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        [0x2002, high, low, ..] => carried(high, low),
        // Teredo and other assignments of protocols; documentation.
        [0x2001, low, ..] if low < 0x200 || low == 0xdb8 => false,
        [0x3fff, low, ..] if low < 0x1000 => false,
        // Global unicast; unique local, link-local, loopback and multicast lie outside.
        [high, ..] => high & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "223.255.255.255",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for inside in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
    }

    #[test]
    fn networks_hold_their_own_family() {
        let is_in = |ip: &str, net: &str, bits| is_in(ip.parse().unwrap(), net.parse().unwrap(), bits);
        assert!(is_in("10.255.0.1", "10.0.0.0", 8) && !is_in("11.0.0.1", "10.0.0.0", 8));
        assert!(is_in("::ffff:10.0.0.9", "10.0.0.0", 8) && is_in("1.2.3.4", "9.9.9.9", 0));
        assert!(is_in("fd00::1", "fd00::", 8) && !is_in("10.0.0.1", "::", 0));
    }
}
