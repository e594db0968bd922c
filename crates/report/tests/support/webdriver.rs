//! A small chromedriver client. It has the parts of the WebDriver protocol (W3C recommendation) that the browser tests need, over HTTP.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MISSING_BROWSER_MESSAGE: &str =
    "this test needs Chromium and its driver; `cargo xtask test` installs them (Debian: chromium, chromium-driver)";

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    home: PathBuf,
}

impl Browser {
    /// Starts a browser that keeps its data in the folder `home`. The folder is created, and removed when the browser is dropped.
    pub fn start(home: &Path) -> Browser {
        std::fs::create_dir_all(home).unwrap();
        let (driver, port) = start_driver();
        let mut browser = Browser { driver, port, session: String::new(), home: home.to_path_buf() };
        let profile = format!("--user-data-dir={}", home.join("profile").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1440,900",
            &profile,
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.call("POST", "/session", Some(capabilities));
        browser.session = format!("/session/{}", session["sessionId"].as_str().expect("a session has an identity"));
        browser
    }

    pub fn open(&self, file: &Path) {
        self.post("/url", json!({ "url": format!("file://{}", file.display()) }));
    }

    /// Sets the width of the page, which may be less than the minimum width of a browser window.
    pub fn set_width(&self, width: u32) {
        self.command(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false }),
        );
    }

    /// Sets the user's preferred colour scheme, `light` or `dark`.
    pub fn set_scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.command("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Checks that the open page has no horizontal scroll bar on a phone and on a desktop, and that dark mode has light text on a dark
    /// background.
    pub fn check_widths_and_schemes(&self) {
        for width in [480, 1400] {
            self.set_width(width);
            let wide = self.eval("return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]");
            assert!(wide[0].as_u64() <= wide[2].as_u64() && wide[1].as_u64() <= wide[2].as_u64(), "at {width}: {wide}");
        }
        for (scheme, is_dark) in [("dark", true), ("light", false)] {
            self.set_scheme(scheme);
            self.post("/refresh", json!({}));
            let colours = self.eval(
                "const style = getComputedStyle(document.body); \
                const sum = (c) => c.match(/\\d+/g).slice(0, 3).reduce((s, v) => s + Number(v), 0); \
                return [sum(style.color), sum(style.backgroundColor)]",
            );
            assert_eq!(colours[0].as_u64() > colours[1].as_u64(), is_dark, "{scheme}: {colours}");
        }
    }

    fn command(&self, method: &str, parameters: Value) {
        self.post("/goog/cdp/execute", json!({ "cmd": method, "params": parameters }));
    }

    pub fn title(&self) -> String {
        self.get("/title").as_str().unwrap().to_string()
    }

    pub fn eval(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// Clicks on an element as a user would. The element must be visible.
    pub fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.post(&format!("/element/{element}/click"), json!({}));
    }

    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.post(&format!("/element/{element}/value"), json!({ "text": text }));
    }

    /// Presses and releases a key without focusing an element first.
    pub fn press(&self, key: &str) {
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": [{ "type": "keyDown", "value": key },
            { "type": "keyUp", "value": key }] }] });
        self.post("/actions", actions);
    }

    /// Returns the messages on the console: script errors, and requests that failed or were rejected.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "browser" }));
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Returns a screenshot of the window as a base64-encoded PNG.
    pub fn screenshot(&self) -> String {
        self.get("/screenshot").as_str().unwrap().to_string()
    }

    fn find(&self, selector: &str) -> String {
        let found = self.post("/element", json!({ "using": "css selector", "value": selector }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_string()
    }

    fn get(&self, path: &str) -> Value {
        self.call("GET", &format!("{}{path}", self.session), None)
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), Some(body))
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|b| b.to_string()).unwrap_or_default();
        let answer: Value = serde_json::from_slice(&self.request(method, path, &body).unwrap()).unwrap();
        let value = answer["value"].clone();
        let hint = if path == "/session" { MISSING_BROWSER_MESSAGE } else { "" };
        assert!(value.get("error").is_none(), "{method} {path}: {} {hint}", value["message"]);
        value
    }
}

impl Browser {
    fn request(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(40)))?;
        let (port, length) = (self.port, body.len());
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n")?;
        write!(stream, "Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")?;
        read_body(stream)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.request("DELETE", &self.session, "").ok();
        }
        self.driver.kill().ok();
        self.driver.wait().ok();
        std::fs::remove_dir_all(&self.home).ok();
    }
}

fn start_driver() -> (Child, u16) {
    let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut driver = driver.unwrap_or_else(|error| panic!("chromedriver cannot be started ({error}): {MISSING_BROWSER_MESSAGE}"));
    // Chromedriver prints "ChromeDriver was started successfully on port 12345."
    let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.filter_map(|l| l.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()).next();
    if port.is_none() {
        driver.wait().unwrap();
    }
    (driver, port.unwrap_or_else(|| panic!("chromedriver ended without naming its port: {MISSING_BROWSER_MESSAGE}")))
}

fn read_body(stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}
