//! The system calls that code in the sandbox may not make, as a BPF program for bubblewrap.
//!
//! Namespaces and dropped capabilities stop most of them already. This takes away what is not behind those:
//! socket families that network namespaces do not cover (a virtual machine's vsock leads out of it), and parts of
//! the kernel that no Python program needs and that break often (io_uring, bpf, userfaultfd, keys, ptrace).

use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;

/// Families that `socket` may be asked for: unix, inet, inet6, and netlink (lists interfaces).
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Flags of `clone` that make a namespace.
const NEW_NAMESPACE: u32 = 0x7E02_0000;

/// Refused as not permitted.
const DENIED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_00B7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;
/// Numbers from here on are the x32 calls of an x86_64 kernel.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// Low half of the first argument (both architectures are little endian).
const ARGUMENT_AT: u32 = 16;
const ALLOW: u32 = 0x7FFF_0000;
const KILL: u32 = 0x8000_0000;
const ERROR: u32 = 0x0005_0000;

#[derive(Clone, Copy)]
struct Step {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

fn step(code: u16, yes: u8, no: u8, value: u32) -> Step {
    Step { code, yes, no, value }
}

fn refuse(errno: libc::c_int) -> Step {
    step(RETURN, 0, 0, ERROR | errno.unsigned_abs())
}

/// The program as the kernel takes it; `None` on an architecture that is not known here.
pub(super) fn filter() -> Option<Vec<u8>> {
    let architecture = ARCHITECTURE?;
    let allow = step(RETURN, 0, 0, ALLOW);
    let call = |number: libc::c_long| u32::try_from(number).unwrap_or(u32::MAX);
    let mut steps = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(JUMP_IF_EQUAL, 1, 0, architecture),
        step(RETURN, 0, 0, KILL),
        step(LOAD, 0, 0, NUMBER_AT),
        step(JUMP_IF_AT_LEAST, 0, 1, X32),
        refuse(libc::EPERM),
    ];
    for number in DENIED {
        steps.extend([step(JUMP_IF_EQUAL, 0, 1, call(*number)), refuse(libc::EPERM)]);
    }
    // Its flags lie in memory, where no filter sees them; glibc falls back to `clone`.
    steps.extend([step(JUMP_IF_EQUAL, 0, 1, call(libc::SYS_clone3)), refuse(libc::ENOSYS)]);
    steps.extend([
        step(JUMP_IF_EQUAL, 0, 4, call(libc::SYS_clone)),
        step(LOAD, 0, 0, ARGUMENT_AT),
        step(JUMP_IF_ANY, 0, 1, NEW_NAMESPACE),
        refuse(libc::EPERM),
        allow,
    ]);
    steps.extend([step(JUMP_IF_EQUAL, 1, 0, call(libc::SYS_socket)), allow, step(LOAD, 0, 0, ARGUMENT_AT)]);
    for family in FAMILIES {
        steps.extend([step(JUMP_IF_EQUAL, 0, 1, family.unsigned_abs()), allow]);
    }
    steps.push(refuse(libc::EAFNOSUPPORT));
    Some(steps.into_iter().flat_map(bytes).collect())
}

/// The program in a file in memory that children inherit; bubblewrap reads it to its end, so each needs its own.
pub(super) fn open() -> std::io::Result<Option<OwnedFd>> {
    let Some(program) = filter() else { return Ok(None) };
    let mut file = File::from(memfd_create("sandbox-filter", MFdFlags::empty())?);
    file.write_all(&program)?;
    file.rewind()?;
    Ok(Some(file.into()))
}

/// How many filters a process has; `None`: it is gone, the kernel does not say (before 5.9), or there is no filter for this
/// machine that a process could be waiting for.
pub(super) fn filters_of(pid: u32) -> Option<u32> {
    ARCHITECTURE?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok())
}

fn bytes(step: Step) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (step.code.to_ne_bytes(), step.value.to_ne_bytes());
    [a, b, step.yes, step.no, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would: number and first argument in, what it returns out.
    fn answer(number: libc::c_long, argument: u32) -> u32 {
        let program = filter().unwrap();
        let (mut at, mut register) = (0, 0_u32);
        loop {
            let s = &program[at * 8..at * 8 + 8];
            let code = u16::from_ne_bytes([s[0], s[1]]);
            let value = u32::from_ne_bytes([s[4], s[5], s[6], s[7]]);
            let jump = |holds: bool| 1 + usize::from(if holds { s[2] } else { s[3] });
            at += match code {
                LOAD => {
                    register = match value {
                        NUMBER_AT => u32::try_from(number).unwrap(),
                        ARCHITECTURE_AT => ARCHITECTURE.unwrap(),
                        ARGUMENT_AT => argument,
                        other => panic!("{other}"),
                    };
                    1
                }
                JUMP_IF_EQUAL => jump(register == value),
                JUMP_IF_AT_LEAST => jump(register >= value),
                JUMP_IF_ANY => jump(register & value != 0),
                RETURN => return value,
                other => panic!("{other}"),
            };
        }
    }

    #[test]
    fn what_is_refused_and_what_is_not() {
        let error = |errno: libc::c_int| ERROR | errno.unsigned_abs();
        for number in DENIED {
            assert_eq!(answer(*number, 0), error(libc::EPERM), "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_futex, libc::SYS_mmap] {
            assert_eq!(answer(number, 0x7E02_0000), ALLOW, "{number}");
        }
        assert_eq!(answer(libc::SYS_clone3, 0), error(libc::ENOSYS));
        assert_eq!(answer(libc::SYS_clone, 0x0001_1200 | 17), ALLOW);
        assert_eq!(answer(libc::SYS_clone, 0x1000_0000), error(libc::EPERM));
        assert_eq!(answer(libc::SYS_socket, 2), ALLOW);
        assert_eq!(answer(libc::SYS_socket, 40), error(libc::EAFNOSUPPORT));
        assert_eq!(answer(0x4000_0001, 0), error(libc::EPERM));
        assert!(filter().unwrap().len() / 8 < 4096);
    }
}
