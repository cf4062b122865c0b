//! A real Chromium, driven over WebDriver: Debian's packages `chromium` and `chromium-driver`. What it shows is kept as
//! pictures in the target folder (`screenshots/`), what it complains about fails the test.

mod axe;
mod command;

use crate::process;
use crate::scale::scale;
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use command::Raw;
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Keys without a letter, as WebDriver writes them.
pub const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";

/// How a page is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Light,
    Dark,
    /// A small phone, 390 pixels wide.
    Phone,
}

impl Look {
    pub const ALL: [Look; 3] = [Self::Light, Self::Dark, Self::Phone];

    fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
            Self::Phone => "phone",
        }
    }

    /// Width and height in CSS pixels.
    fn size(self) -> (u32, u32) {
        match self {
            Self::Light | Self::Dark => (1280, 800),
            Self::Phone => (390, 844),
        }
    }
}

/// Height of the tallest picture.
const PICTURE_PIXELS_MAX: u64 = 6_000;

/// A browser with one window; it ends when it is dropped.
pub struct Browser {
    client: Client,
    driver: Child,
    /// Process id of the browser itself, which outlives a driver that is killed.
    pid: Option<i32>,
    /// Profile, log and downloads.
    folder: TempDir,
    base: String,
}

impl Browser {
    /// Starts the driver and a browser; paths given later are below `base`.
    ///
    /// # Errors
    /// When either is not installed or does not start.
    pub async fn start(base: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("muster-browser-").tempdir()?;
        let port = process::free_port()?;
        let log = File::create(folder.path().join("driver.log"))?;
        let driver = process::spawn(
            Command::new("chromedriver")
                .arg(format!("--port={port}"))
                // A home of its own: nothing of who runs the tests is read or written.
                .env("HOME", folder.path())
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log),
        )
        .context("apt-get install chromium chromium-driver, as tests/run.sh does")?;
        let wanted = capabilities(folder.path());
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(wanted);
        let url = format!("http://127.0.0.1:{port}");
        let client = wait::until("the browser starts", scale().patience(), async || {
            Ok(Some(builder.connect(&url).await?))
        })
        .await;
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                let said = std::fs::read_to_string(folder.path().join("driver.log")).unwrap_or_default();
                return Err(error.context(said));
            }
        };
        let pid = client.capabilities().and_then(|c| c.get("goog:processID")?.as_i64()?.try_into().ok());
        let browser = Self { client, driver, pid, folder, base: base.into() };
        browser.look(Look::Light).await?;
        Ok(browser)
    }

    /// Opens a path.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn open(&self, path: &str) -> Result<()> {
        Ok(self.client.goto(&format!("{}{path}", self.base)).await?)
    }

    /// Opens a file of this machine.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn open_file(&self, file: &Path) -> Result<()> {
        Ok(self.client.goto(&format!("file://{}", file.display())).await?)
    }

    /// Path (with query and fragment) of the page that is open.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn path(&self) -> Result<String> {
        let url = self.client.current_url().await?;
        Ok(url.as_str().strip_prefix(&self.base).unwrap_or(url.as_str()).to_owned())
    }

    /// The element, once it is there and seen.
    ///
    /// # Errors
    /// When it is not in time; with what the page says.
    pub async fn see(&self, css: &str) -> Result<Element> {
        let found = wait::until(css, scale().patience(), async || {
            let Ok(element) = self.client.find(Locator::Css(css)).await else { return Ok(None) };
            Ok(element.is_displayed().await?.then_some(element))
        });
        match found.await {
            Ok(element) => Ok(element),
            Err(error) => Err(error.context(self.said().await)),
        }
    }

    /// Waits until the page is this one and drawn.
    ///
    /// # Errors
    /// When it is not in time; with what the page says.
    pub async fn at(&self, fits: impl Fn(&str) -> bool) -> Result<String> {
        let reached = wait::until("the page is open", scale().patience(), async || {
            let path = self.path().await?;
            let drawn = self.script("return document.readyState").await? == "complete";
            Ok((drawn && fits(&path)).then_some(path))
        });
        match reached.await {
            Ok(path) => Ok(path),
            Err(error) => Err(error.context(self.said().await)),
        }
    }

    /// Where it is and what stands there.
    async fn said(&self) -> String {
        let text = self.script("return document.body.innerText").await.unwrap_or_default();
        format!("{}\n{}", self.path().await.unwrap_or_default(), text.as_str().unwrap_or_default())
    }

    /// Clicks it, once it is there.
    ///
    /// # Errors
    /// As [`Browser::see`], or when something covers it.
    pub async fn click(&self, css: &str) -> Result<()> {
        self.see(css).await?.click().await.with_context(|| css.to_owned())
    }

    /// Writes into a field.
    ///
    /// # Errors
    /// As [`Browser::see`].
    pub async fn write(&self, css: &str, text: &str) -> Result<()> {
        Ok(self.see(css).await?.send_keys(text).await?)
    }

    /// Runs a script in the page; what it returns.
    ///
    /// # Errors
    /// What it throws.
    pub async fn script(&self, text: &str) -> Result<Value> {
        Ok(self.client.execute(text, vec![]).await?)
    }

    /// Waits until a script returns true.
    ///
    /// # Errors
    /// When it does not in time; with what the page says.
    pub async fn holds(&self, what: &str, text: &str) -> Result<()> {
        let held = wait::until(what, scale().patience(), async || {
            Ok((self.script(text).await? == json!(true)).then_some(()))
        });
        match held.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.said().await)),
        }
    }

    /// Presses keys, one after the other, where the focus is.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn press(&self, keys: &str) -> Result<()> {
        let strokes = keys.chars().fold(KeyActions::new("keyboard".into()), |all, value| {
            all.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        Ok(self.client.perform_actions(strokes).await?)
    }

    /// Goes on with the tab key until the focus is on what fits this selector; each stop on the way must be seen.
    ///
    /// # Errors
    /// When it is not among the first 60 stops, or a stop has no visible mark.
    pub async fn tab_to(&self, css: &str) -> Result<()> {
        const STOP: &str = "const e = document.activeElement; const s = getComputedStyle(e); \
            const inner = e.querySelector('rect'); \
            const ringed = (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0) \
                || (inner && parseFloat(getComputedStyle(inner).strokeWidth) >= 4); \
            return [e.matches(arguments[0]), e === document.body || ringed, e.outerHTML.slice(0, 120)];";
        for _ in 0..60 {
            self.press(TAB).await?;
            let stop = self.client.execute(STOP, vec![json!(css)]).await?;
            ensure!(stop[1] == true, "the focus is not seen on {}", stop[2]);
            if stop[0] == true {
                return Ok(());
            }
        }
        bail!("{css} is not reached by the tab key\n{}", self.said().await)
    }

    /// From now on the page is looked at like this. It is not loaded again.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn look(&self, look: Look) -> Result<()> {
        let (width, height) = look.size();
        let scheme = if look == Look::Dark { "dark" } else { "light" };
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": look == Look::Phone});
        // Nothing moves: a picture is the same each time, and contrast is not measured halfway.
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]});
        for (cmd, params) in
            [("Emulation.setDeviceMetricsOverride", size), ("Emulation.setEmulatedMedia", media)]
        {
            self.raw("goog/cdp/execute", &json!({"cmd": cmd, "params": params})).await?;
        }
        Ok(())
    }

    /// Looks at the open page in every way: a picture of each, nothing that is wider than the screen, and nothing
    /// serious that axe finds. Leaves it light.
    ///
    /// # Errors
    /// All that was found, on all looks.
    pub async fn inspect(&self, name: &str) -> Result<()> {
        let mut found = vec![];
        for look in Look::ALL {
            self.look(look).await?;
            let about = format!("{name}-{}", look.name());
            self.picture(&about).await?;
            let wide = self
                .script("const d = document.documentElement; return d.scrollWidth - d.clientWidth")
                .await?;
            if wide != 0 {
                found.push(format!("{about}: wider than the screen by {wide} pixels"));
            }
            found.extend(axe::check(&self.client).await?.into_iter().map(|f| format!("{about}: {f}")));
        }
        self.look(Look::Light).await?;
        ensure!(found.is_empty(), "{}", found.join("\n"));
        Ok(())
    }

    /// A picture of the whole page as it is looked at just now.
    ///
    /// # Errors
    /// When it cannot be taken or kept.
    pub async fn picture(&self, name: &str) -> Result<()> {
        use base64::Engine as _;
        // The whole page, to an end: no picture is taller than a browser can draw.
        let size =
            self.script("const d = document.documentElement; return [d.clientWidth, d.scrollHeight]").await?;
        let height = size[1].as_u64().unwrap_or(0).min(PICTURE_PIXELS_MAX);
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": height, "scale": 1});
        let params = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken =
            self.raw("goog/cdp/execute", &json!({"cmd": "Page.captureScreenshot", "params": params})).await?;
        let data = taken["data"].as_str().context("no picture")?;
        let folder = target()?.join("screenshots");
        std::fs::create_dir_all(&folder)?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(data)?;
        Ok(std::fs::write(folder.join(format!("{name}.png")), bytes)?)
    }

    /// What the console said that is worse than a notice, since the last time this was asked.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let log = self.raw("se/log", &json!({"type": "browser"})).await?;
        let lines = log.as_array().cloned().unwrap_or_default();
        let bad = lines.iter().filter(|l| l["level"] == "SEVERE" || l["level"] == "WARNING");
        Ok(bad.map(|l| l["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// The bytes of a file that was downloaded, once it is whole.
    ///
    /// # Errors
    /// When it does not come in time.
    pub async fn downloaded(&self, name: &str) -> Result<Vec<u8>> {
        let path = downloads(self.folder.path()).join(name);
        wait::until(&format!("{name} is downloaded"), scale().patience(), async || {
            Ok(if path.is_file() { Some(std::fs::read(&path)?) } else { None })
        })
        .await
    }

    async fn raw(&self, path: &'static str, body: &Value) -> Result<Value> {
        Ok(self.client.issue_cmd(Raw { path, body: body.clone() }).await?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        process::kill_now(&mut self.driver);
        if let Some(pid) = self.pid {
            // Its own processes end with it.
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

fn downloads(folder: &Path) -> PathBuf {
    folder.join("downloads")
}

fn capabilities(folder: &Path) -> serde_json::Map<String, Value> {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let mut args = vec![
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        // It calls nobody.
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-quic",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        &profile,
    ];
    if nix::unistd::Uid::effective().is_root() {
        // Its own sandbox does not start as root; the pages are ours.
        args.push("--no-sandbox");
    }
    let prefs = json!({"download.default_directory": downloads(folder), "download.prompt_for_download": false,
        "profile.password_manager_leak_detection": false, "credentials_enable_service": false});
    let wanted = json!({"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
        "goog:chromeOptions": {"args": args, "prefs": prefs}});
    wanted.as_object().cloned().unwrap_or_default()
}

/// The folder that everything is built into.
fn target() -> Result<PathBuf> {
    // target/<profile>/deps/<test>
    let me = std::env::current_exe().context("the test's own path")?;
    Ok(me.ancestors().nth(3).context("a target folder")?.to_path_buf())
}
