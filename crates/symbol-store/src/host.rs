//! What this process knows of hosts: which are down, where they are, how their stores are laid out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Look-up and connect together (spec 00 decision 25).
pub const REACH_BUDGET: Duration = Duration::from_secs(2);
/// How long a host that could not be reached is not asked again.
pub const HOST_DOWN_FOR: Duration = Duration::from_secs(60);
/// An answer without a file that takes longer counts against its host.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);
/// Such waits together that are borne before the host counts as down.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long addresses and store layouts are believed.
const KNOWN_FOR: Duration = Duration::from_secs(300);
/// Entries of each table; more start it afresh.
const TABLE_LIMIT: usize = 1024;

#[derive(Default)]
struct Knowledge {
    down: HashMap<Host, Instant>,
    addresses: HashMap<Host, (Instant, Vec<SocketAddr>)>,
    /// Slow answers that gave nothing, since the host was last down.
    waited: HashMap<Host, Duration>,
    two_tier: HashMap<String, (Instant, bool)>,
}

static KNOWLEDGE: LazyLock<Mutex<Knowledge>> = LazyLock::new(Mutex::default);

fn knowledge() -> MutexGuard<'static, Knowledge> {
    KNOWLEDGE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn insert<K: Eq + std::hash::Hash, V>(table: &mut HashMap<K, V>, key: K, value: V) {
    if table.len() >= TABLE_LIMIT {
        table.clear();
    }
    table.insert(key, value);
}

/// A host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    name: String,
    port: u16,
}

impl Host {
    pub(crate) fn of(url: &str) -> Option<Self> {
        Self::of_uri(&url.parse().ok()?)
    }
    fn of_uri(uri: &Uri) -> Option<Self> {
        let default = match uri.scheme_str()? {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let name = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        Some(Self { name, port: uri.port_u16().unwrap_or(default) })
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.name == "localhost" || self.name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    pub(crate) fn is_down(&self) -> bool {
        let mut known = knowledge();
        match known.down.get(self) {
            Some(since) if since.elapsed() < HOST_DOWN_FOR => true,
            Some(_) => {
                known.down.remove(self);
                false
            }
            None => false,
        }
    }
    pub(crate) fn mark_down(&self) {
        let mut known = knowledge();
        known.addresses.remove(self);
        known.waited.remove(self);
        insert(&mut known.down, self.clone(), Instant::now());
    }

    /// Counts a wait that gave no file: a server that takes seconds to say no, for every file, would
    /// stall a session as surely as one that is not there.
    pub(crate) fn made_us_wait(&self, wait: Duration) {
        if wait < PROMPT {
            return;
        }
        let total = {
            let mut known = knowledge();
            let total = known.waited.get(self).copied().unwrap_or_default() + wait;
            insert(&mut known.waited, self.clone(), total);
            total
        };
        if total >= PATIENCE {
            self.mark_down();
        }
    }

    fn known_addresses(&self) -> Option<Vec<SocketAddr>> {
        let known = knowledge();
        let (since, addresses) = known.addresses.get(self)?;
        (since.elapsed() < KNOWN_FOR).then(|| addresses.clone())
    }

    /// Looks the name up if its addresses are not known; returns what is left to connect within.
    /// The system's resolver cannot be interrupted: a thread is left to it.
    pub(crate) fn look_up(&self) -> Result<Duration, String> {
        if self.known_addresses().is_some() {
            return Ok(REACH_BUDGET);
        }
        let started = Instant::now();
        let (sender, receiver) = mpsc::channel();
        let (name, port) = (self.name.clone(), self.port);
        std::thread::Builder::new()
            .name("look-up".to_owned())
            .spawn(move || {
                let found = (name.as_str(), port).to_socket_addrs().map(|a| a.take(8).collect::<Vec<_>>());
                drop(sender.send(found));
            })
            .map_err(|e| e.to_string())?;
        let addresses = match receiver.recv_timeout(REACH_BUDGET) {
            Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
            Ok(Ok(_)) => return Err(format!("{} has no address", self.name)),
            Ok(Err(error)) => return Err(format!("{} cannot be looked up: {error}", self.name)),
            Err(_) => return Err(format!("looking up {} took over {REACH_BUDGET:?}", self.name)),
        };
        insert(&mut knowledge().addresses, self.clone(), (Instant::now(), addresses));
        // A connect needs some time even after a slow look-up.
        Ok(REACH_BUDGET.saturating_sub(started.elapsed()).max(Duration::from_millis(50)))
    }
}

/// Whether the store at this URL is two-tier, if it was asked lately.
pub(crate) fn two_tier(root: &str) -> Option<bool> {
    let known = knowledge();
    let (since, answer) = known.two_tier.get(root)?;
    (since.elapsed() < KNOWN_FOR).then_some(*answer)
}
pub(crate) fn remember_two_tier(root: &str, answer: bool) {
    insert(&mut knowledge().two_tier, root.to_owned(), (Instant::now(), answer));
}

/// Hands out the addresses that [`Host::look_up`] found, so that no second look-up is paid for.
#[derive(Debug, Default)]
struct KnownAddresses(DefaultResolver);

impl Resolver for KnownAddresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let Some(known) = Host::of_uri(uri).and_then(|host| host.known_addresses()) else {
            return self.0.resolve(uri, config, timeout);
        };
        let mut addresses = self.empty();
        known.into_iter().take(8).for_each(|address| addresses.push(address));
        Ok(addresses)
    }
}

/// The one HTTP client of the process. Redirects are followed by our rule, not the library's.
pub(crate) fn agent() -> &'static ureq::Agent {
    static AGENT: LazyLock<ureq::Agent> = LazyLock::new(|| {
        let config = Config::builder()
            .user_agent(concat!("windbg-mcp/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build();
        ureq::Agent::with_parts(config, DefaultConnector::default(), KnownAddresses::default())
    });
    &AGENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_refusals_add_up_and_prompt_ones_do_not() {
        let host = Host::of("http://sluggish.test/x").unwrap();
        for _ in 0..100 {
            host.made_us_wait(Duration::from_millis(900));
        }
        host.made_us_wait(Duration::from_secs(3));
        assert!(!host.is_down());
        host.made_us_wait(Duration::from_secs(2));
        assert!(host.is_down());
    }
}
