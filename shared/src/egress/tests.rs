//! The guard before real connections to servers of this machine.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers one word, and its port.
async fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut line, _)) = listener.accept().await {
            let _ = line.read(&mut [0; 4096]).await;
            let _ = line
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret")
                .await;
        }
    });
    port
}

fn guard(allow: &[&str], lookup: fn(&str) -> Vec<IpAddr>) -> Guard {
    let config = Egress { allow: allow.iter().map(|e| (*e).to_owned()).collect() };
    Guard { lookup: Some(Arc::new(lookup)), ..Guard::new(&config).unwrap() }
}

/// A name that is public, or so its owner says, and one that leads inside.
fn names(host: &str) -> Vec<IpAddr> {
    match host {
        "rebound.example" | "localhost" | "orders.internal" => vec!["127.0.0.1".parse().unwrap()],
        "mixed.example" => vec!["10.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        _ => vec![],
    }
}

async fn call(guard: &Guard, url: &str) -> Result<String, Refused> {
    let url = Url::parse(url).unwrap();
    guard.check(&url)?;
    match guard.client().build().unwrap().get(url).send().await {
        Ok(answer) => Ok(answer.text().await.unwrap()),
        Err(error) => Err(Refused::of(&error).unwrap_or_else(|| panic!("{error:?}"))),
    }
}

#[tokio::test]
async fn what_a_name_resolves_to_is_refused_where_the_connection_takes_it_from() {
    let port = server().await;
    let guard = guard(&[], names);
    for host in ["rebound.example", "mixed.example", "localhost"] {
        let refused = call(&guard, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert_eq!(refused, Refused::Inside(host.into()));
    }
    let refused = call(&guard, "http://nobody.example/").await.unwrap_err();
    assert_eq!(refused, Refused::Unknown("nobody.example".into()));
}

#[tokio::test]
async fn addresses_in_the_url_are_refused_however_they_are_written() {
    let port = server().await;
    let guard = guard(&[], names);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
    ] {
        let refused = call(&guard, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(matches!(refused, Refused::Inside(_)), "{host}: {refused}");
    }
    for (url, want) in [("file:///etc/passwd", Refused::Scheme), ("http://a:b@example.com/", Refused::User)] {
        assert_eq!(call(&guard, url).await, Err(want), "{url}");
    }
}

#[tokio::test]
async fn what_is_allowed_is_called_and_nothing_beside_it() {
    let (port, other) = (server().await, server().await);
    let here = format!("127.0.0.1:{port}");
    let by_address = guard(&[&here], names);
    assert_eq!(call(&by_address, &format!("http://{here}/")).await.unwrap(), "secret");
    assert!(call(&by_address, &format!("http://127.0.0.1:{other}/")).await.is_err());
    // Who owns a name could otherwise send it there under any port.
    assert!(call(&by_address, &format!("http://rebound.example:{port}/")).await.is_err());

    let name = format!("orders.internal:{port}");
    let by_name = guard(&[&name], names);
    assert_eq!(call(&by_name, &format!("http://{name}/")).await.unwrap(), "secret");
    assert!(call(&by_name, &format!("http://orders.internal:{other}/")).await.is_err());
    assert!(call(&guard(&["*.internal"], names), &format!("http://{name}/")).await.is_ok());
    assert!(call(&guard(&["*.rders.internal"], names), &format!("http://{name}/")).await.is_err());
    assert!(call(&guard(&["127.0.0.0/8"], names), &format!("http://rebound.example:{port}/")).await.is_ok());

    let written = guard(&[], names).also(&Url::parse(&format!("http://{here}/x")).unwrap());
    assert!(call(&written, &format!("http://{here}/y")).await.is_ok());
    assert!(call(&written, &format!("http://127.0.0.1:{other}/")).await.is_err());
}
