//! Pages as they are written, and as somebody writes them who means harm.

use super::*;

fn md(html: &str) -> String {
    of(html, &Url::parse("https://example.org/a/page?x=1").unwrap())
}

#[test]
fn a_page_becomes_readable_markdown() {
    let html = r#"<!DOCTYPE html><html><head><title>Offices &amp; desks</title><style>p{color:red}</style></head>
<body><nav><a href="/">Home</a> <a href="/x">Menu</a></nav>
<h1>Offices</h1><p>Three <b>large</b> offices,
   see <a href="../b.html">the list</a>&nbsp;– or <a href='javascript:alert(1)'>not</a>.</p>
<ul><li>Berlin<li><p>Paris</p><ol><li>left</li><li>right</li></ol></li></ul>
<table><tr><th>office</th><th>desks</th></tr><tr><td>Berlin</td><td>12</td></tr></table>
<pre><code>let x = 1;
  if x &lt; 2 {}</code></pre>
<blockquote>Quoted</blockquote><img src=x alt="A map"><script>if (a<b) { alert("</p>") }</script>
<!-- hidden > -->5 < 6<footer>Imprint</footer></body></html>"#;
    let want = "# Offices & desks\n\n# Offices\n\nThree **large** offices, see [the list](https://example.org/b.html) – or not.\n\n\
        - Berlin\n- Paris\n  1. left\n  2. right\n\n| office | desks |\n|---|---|\n| Berlin | 12 |\n\n```\nlet x = 1;\n  if x < 2 {}\n```\n\n\
        > Quoted\n\n[image: A map] 5 < 6";
    assert_eq!(md(html), want);
}

#[test]
fn what_the_page_calls_its_text_is_taken_if_there_is_some() {
    let text = "word ".repeat(60);
    let page = format!(
        "<body><div>Cookies? Subscribe!</div><main><h1>T</h1><p>{text}</p></main><div>Related</div></body>"
    );
    let said = md(&page);
    assert!(
        said.starts_with("# T\n\nword word") && !said.contains("Cookies") && !said.contains("Related"),
        "{said}"
    );
    let thin = md("<body><p>All there is.</p><main><div id=app></div></main></body>");
    assert_eq!(thin, "All there is.");
}

#[test]
fn broken_and_hostile_pages_end_soon_and_small() {
    let deep = "<div>".repeat(300_000);
    let unclosed = format!("{}{}", "<b x=1>".repeat(1_000), "<p>x".repeat(200_000));
    for page in [
        deep,
        unclosed,
        "<a href=x>".repeat(200_000),
        "<ul><li>".repeat(100_000),
        "<script>".repeat(200_000),
        "<!--".repeat(200_000),
        "<td>".repeat(200_000),
        "&#x".repeat(300_000),
        "<".repeat(500_000),
        "<a \"".repeat(100_000),
    ] {
        let most = page.len() * 3 + 100;
        assert!(md(&page).len() <= most);
    }
    for (page, want) in [
        ("", ""),
        ("plain", "plain"),
        ("<p", ""),
        ("<p>a<", "a<"),
        ("</", ""),
        ("a<i", "a"),
        ("<a href=\"x", ""),
        ("<title>", ""),
        ("<ul></ol></ul>x", "x"),
        ("</nav>x", "x"),
        ("&#0;&#xD800;&#99999999;&bogus;", "&#0;&#xD800;&#99999999;&bogus;"),
        ("<svg/>x", "x"),
        ("<li>a", "- a"),
        ("<nav>a<nav>b</nav>c</nav>d", "d"),
    ] {
        assert_eq!(md(page), want, "{page}");
    }
}
