//! Spec 80 section 15, case 21: the cases of section 11.3 against a loopback server over `symsrv/`.

#![allow(clippy::unwrap_used)]

mod loopback;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loopback::{Answer, Server};
use symbol_store::{
    HEAD_BUDGET, HOST_DOWN_FOR, Outcome, REACH_BUDGET, Search, Settings, SymbolPath, Verdict, Wanted, find,
};
use target::{Guid, Halt, PdbIdentity};

const PDB_KEY: &str = "A62592418D7807494C4C44205044422E1";
const EXE_KEY: &str = "63E6C7F78000";

/// The shared fixtures, or `None` when they are not there (never under CI).
fn symsrv() -> Option<PathBuf> {
    test_data::shared().map(|data| data.join("symsrv"))
}

/// A case: the fixtures, and two folders of its own for the local store and the default one.
struct Case {
    pdb: Vec<u8>,
    packed_pdb: Vec<u8>,
    exe: Vec<u8>,
    packed_exe: Vec<u8>,
    store: tempfile::TempDir,
    default: tempfile::TempDir,
}

impl Case {
    fn new() -> Option<Self> {
        let root = symsrv()?;
        let read = |file: &str| fs::read(root.join(file)).unwrap();
        Some(Self {
            pdb: read(&format!("ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb")),
            packed_pdb: read(&format!("ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pd_")),
            exe: read(&format!("ShowSSEConfig.exe/{EXE_KEY}/ShowSSEConfig.exe")),
            packed_exe: read(&format!("ShowSSEConfig.exe/{EXE_KEY}/ShowSSEConfig.ex_")),
            store: tempfile::tempdir().unwrap(),
            default: tempfile::tempdir().unwrap(),
        })
    }

    fn settings(&self) -> Settings {
        Settings { network: true, default_store: self.default.path().to_owned() }
    }
    fn path(&self, server: &str) -> SymbolPath {
        SymbolPath::parse(&format!("srv*{}*{server}", self.store.path().display()))
    }
    /// Looks for the PDB; only the whole right file passes the check.
    fn look(&self, server: &str) -> Search {
        find(&self.path(server), &pdb(), &self.settings(), &Halt::unbounded(), &same_as(&self.pdb))
    }
    fn stored(&self) -> PathBuf {
        self.store.path().join(format!("ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb"))
    }
    /// No half-taken file anywhere.
    fn assert_no_parts(&self) {
        for root in [self.store.path(), self.default.path()] {
            let mut folders = vec![root.to_owned()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let name = entry.file_name().into_string().unwrap();
                    assert!(!name.ends_with(".part"), "{name} was left behind");
                    if entry.path().is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
        }
    }
}

fn pdb() -> Wanted {
    let guid = Guid::parse(&PDB_KEY[..32]).unwrap();
    let identity = PdbIdentity { guid, age: 1, name: r"C:\build\ShowSSEConfig.pdb".into() };
    Wanted::Pdb { identity, image_name: Some("ShowSSEConfig.exe".into()) }
}

fn same_as(expected: &[u8]) -> impl Fn(&Path) -> Verdict {
    move |file| match fs::read(file) {
        Ok(bytes) if bytes == expected => Verdict::Match,
        Ok(bytes) if bytes.starts_with(b"Microsoft C/C++ MSF 7.00") => {
            Verdict::Mismatch("other bytes".into())
        }
        _ => Verdict::NotThis,
    }
}

fn outcomes(search: &Search) -> Vec<&Outcome> {
    search.tried.iter().map(|t| &t.outcome).collect()
}

#[test]
fn acceptance_21_a_plain_hit_is_kept_and_not_fetched_again() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    server.serve(&format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb"), Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert_eq!(search.found.as_deref(), Some(case.stored().as_path()), "{search:?}");
    assert_eq!(fs::read(case.stored()).unwrap(), case.pdb);
    assert!(server.agents().iter().all(|agent| agent.starts_with("windbg-mcp/")), "{:?}", server.agents());
    let asked = server.asked().len();
    let again = case.look(&server.url());
    assert_eq!(again.found, search.found);
    assert_eq!(server.asked().len(), asked, "the stored copy should do");
    case.assert_no_parts();

    // Without a folder in the chain a hit is kept in the default store, and found there.
    let path = SymbolPath::parse(&format!("srv*{}", server.url()));
    let settings = case.settings();
    let first = find(&path, &pdb(), &settings, &Halt::unbounded(), &same_as(&case.pdb));
    assert!(first.found.unwrap().starts_with(case.default.path()));
    let asked = server.asked().len();
    assert!(find(&path, &pdb(), &settings, &Halt::unbounded(), &same_as(&case.pdb)).found.is_some());
    assert_eq!(server.asked().len(), asked);
}

#[test]
fn acceptance_21_compressed_only() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    server.serve(&format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pd_"), Answer::ok(&case.packed_pdb));
    server.serve(&format!("/ShowSSEConfig.exe/{EXE_KEY}/ShowSSEConfig.ex_"), Answer::ok(&case.packed_exe));
    // The packed PDB is the plain one but for 74 bytes: judged by length and GUID.
    let (length, guid) = (case.pdb.len(), Guid::parse(&PDB_KEY[..32]).unwrap().0);
    let fits = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        let right = bytes.len() == length && bytes.windows(16).any(|w| w == guid);
        if right { Verdict::Match } else { Verdict::NotThis }
    };
    let path = case.path(&server.url());
    let search = find(&path, &pdb(), &case.settings(), &Halt::unbounded(), &fits);
    assert_eq!(search.found.as_deref(), Some(case.stored().as_path()), "{search:?}");
    assert_eq!(fits(&case.stored()), Verdict::Match);

    let image = Wanted::Image { name: "ShowSSEConfig.exe".into(), timestamp: 0x63e6_c7f7, size: 0x8000 };
    let search = find(&path, &image, &case.settings(), &Halt::unbounded(), &same_as(&case.exe));
    assert!(search.found.is_some(), "{search:?}");
    case.assert_no_parts();
}

#[test]
fn acceptance_21_file_ptr() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let folder = format!("/ShowSSEConfig.pdb/{PDB_KEY}");
    let pointer = format!("PATH:{}/elsewhere/x.pdb\r\n", server.url());
    server.serve(&format!("{folder}/file.ptr"), Answer::ok(pointer.as_bytes()));
    server.serve("/elsewhere/x.pdb", Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert_eq!(search.found.as_deref(), Some(case.stored().as_path()), "{search:?}");

    let other = Case::new().unwrap();
    server.serve(&format!("{folder}/file.ptr"), Answer::ok(b"MSG: private file"));
    let search = other.look(&server.url());
    assert_eq!(outcomes(&search).last(), Some(&&Outcome::Message("private file".into())), "{search:?}");
    assert!(search.reason().unwrap().contains("private file"));

    // A server may not make us read a file of ours.
    let secret = other.default.path().join("secret");
    fs::write(&secret, &other.pdb).unwrap();
    server.serve(&format!("{folder}/file.ptr"), Answer::ok(format!("PATH:{}", secret.display()).as_bytes()));
    assert_eq!(other.look(&server.url()).found, None);
}

#[test]
fn acceptance_21_absence_is_remembered_but_a_server_error_is_not() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let file = format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb");
    server.serve(&file, Answer::status(503));
    assert_eq!(case.look(&server.url()).found, None);
    let asked = server.asked().len();
    let search = case.look(&server.url());
    assert!(server.asked().len() > asked, "a 5xx is no answer: {search:?}");
    assert!(search.reason().unwrap().contains("503"), "{search:?}");

    server.forget(&file);
    let search = case.look(&server.url());
    assert_eq!(outcomes(&search).last(), Some(&&Outcome::Absent), "{search:?}");
    let asked = server.asked().len();
    server.serve(&file, Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert_eq!(outcomes(&search).last(), Some(&&Outcome::AbsentAsRemembered), "{search:?}");
    assert_eq!(server.asked().len(), asked);
}

#[test]
fn acceptance_21_redirects() {
    let Some(case) = Case::new() else { return };
    let (server, stranger) = (Server::start(), Server::start());
    let file = format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb");
    server.serve(&file, Answer::redirect("/moved/1"));
    server.serve("/moved/1", Answer::redirect("2"));
    server.serve("/moved/2", Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert_eq!(search.found.as_deref(), Some(case.stored().as_path()), "{search:?}");

    // Round in circles, to another host over http, and out of the web.
    stranger.serve("/x", Answer::ok(&case.pdb));
    for location in [file.clone(), format!("{}/x", stranger.url()), "file:///etc/hostname".to_owned()] {
        let other = Case::new().unwrap();
        server.serve(&file, Answer::redirect(&location));
        let search = other.look(&server.url());
        assert_eq!(search.found, None, "{location}");
        assert!(search.tried.iter().any(|t| matches!(t.outcome, Outcome::Failed(_))), "{search:?}");
    }
    assert_eq!(stranger.asked(), Vec::<String>::new());
}

#[test]
fn acceptance_21_a_truncated_body_is_not_kept() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let file = format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb");
    let half = &case.pdb[..case.pdb.len() / 2];
    let lax = |_: &Path| Verdict::Match;
    let broken = [
        Answer::ok(half).claiming(case.pdb.len()),
        Answer::ok(half).without_length(),
        Answer::ok(half).chunked(false),
    ];
    for answer in broken {
        server.serve(&file, answer);
        let path = case.path(&server.url());
        let search = find(&path, &pdb(), &case.settings(), &Halt::unbounded(), &lax);
        assert_eq!(search.found, None, "{search:?}");
        assert!(!case.stored().exists());
        case.assert_no_parts();
    }
    // A whole one of the wrong content is not kept either.
    server.serve(&file, Answer::ok(half));
    assert_eq!(case.look(&server.url()).found, None);
    assert!(!case.stored().exists());
    // A packed one that ends early.
    server.forget(&file);
    let packed = &case.packed_pdb[..case.packed_pdb.len() - 900];
    server.serve(&format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pd_"), Answer::ok(packed));
    let search = find(&case.path(&server.url()), &pdb(), &case.settings(), &Halt::unbounded(), &lax);
    assert_eq!(search.found, None, "{search:?}");
    server.serve(&file, Answer::ok(&case.pdb).chunked(true));
    assert!(case.look(&server.url()).found.is_some());
    case.assert_no_parts();
}

#[test]
fn acceptance_21_two_tier() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    server.serve("/index2.txt", Answer::ok(b""));
    server.serve(&format!("/Sh/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb"), Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert!(search.found.is_some(), "{search:?}");

    // The same on disk, both as the source and as the store a hit is copied to.
    let (source, nearer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("index2.txt"), "").unwrap();
    fs::write(nearer.path().join("index2.txt"), "").unwrap();
    let folder = source.path().join(format!("Sh/ShowSSEConfig.pdb/{PDB_KEY}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ShowSSEConfig.pdb"), &case.pdb).unwrap();
    let path = SymbolPath::parse(&format!("srv*{}*{}", nearer.path().display(), source.path().display()));
    let search = find(&path, &pdb(), &Settings::offline(), &Halt::unbounded(), &same_as(&case.pdb));
    let expected = nearer.path().join(format!("Sh/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb"));
    assert_eq!(search.found, Some(expected));
}

#[test]
fn acceptance_21_a_lowercase_store() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let lower = format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb").to_lowercase();
    server.serve(&lower, Answer::ok(&case.pdb));
    assert!(case.look(&server.url()).found.is_some());
}

#[test]
fn acceptance_21_a_dead_server_costs_once() {
    let Some(case) = Case::new() else { return };
    // Accepts nothing: the backlog of a listener nobody serves is filled first, so that a connect
    // hangs instead of being refused.
    let (url, _held) = loopback::silent();
    let started = Instant::now();
    let search = case.look(&url);
    let first = started.elapsed();
    assert_eq!(search.found, None);
    assert!(first < REACH_BUDGET + Duration::from_millis(700), "{first:?}");
    assert!(search.reason().unwrap().contains("not asked again"), "{search:?}");

    let started = Instant::now();
    let search = case.look(&url);
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
    assert_eq!(outcomes(&search).last(), Some(&&Outcome::HostDown), "{search:?}");
    assert_eq!(HOST_DOWN_FOR, Duration::from_secs(60));
}

#[test]
fn a_server_that_accepts_and_never_answers_costs_one_wait() {
    let Some(case) = Case::new() else { return };
    // A listener's backlog accepts for it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let started = Instant::now();
    let search = case.look(&url);
    assert!(started.elapsed() < HEAD_BUDGET + Duration::from_millis(700), "{:?}", started.elapsed());
    assert!(search.reason().unwrap().contains("not asked again"), "{search:?}");
    let started = Instant::now();
    assert_eq!(case.look(&url).found, None);
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
}

#[test]
fn acceptance_21_a_closed_connection_is_no_dead_server() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    server.serve("/index2.txt", Answer::status(404).lingering());
    server.serve(&format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb"), Answer::ok(&case.pdb));
    let search = case.look(&server.url());
    assert!(search.found.is_some(), "{search:?}");
}

#[test]
fn acceptance_21_without_the_network_nothing_is_asked() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let settings = Settings { network: false, ..case.settings() };
    let path = case.path(&server.url());
    let search = find(&path, &pdb(), &settings, &Halt::unbounded(), &same_as(&case.pdb));
    assert_eq!(outcomes(&search).last(), Some(&&Outcome::NetworkOff));
    assert_eq!(server.asked(), Vec::<String>::new());
}

#[test]
fn acceptance_21_a_break_is_heard_while_a_body_is_silent() {
    let Some(case) = Case::new() else { return };
    let server = Server::start();
    let file = format!("/ShowSSEConfig.pdb/{PDB_KEY}/ShowSSEConfig.pdb");
    server.serve(&file, Answer::ok(&case.pdb).stalling());
    let halt = Halt::within(Duration::from_millis(300));
    let started = Instant::now();
    let search = find(&case.path(&server.url()), &pdb(), &case.settings(), &halt, &same_as(&case.pdb));
    assert!(search.cut_short, "{search:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    case.assert_no_parts();
}
