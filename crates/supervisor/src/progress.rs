//! Progress of a call (spec 10 section 3.2): milestones as they come, a heartbeat after silence,
//! and an answer that no slow listener delays by more than a second.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Where a call's progress goes; a transport implements it.
#[async_trait]
pub trait ProgressSink: Send + Sync {
    /// `elapsed` is seconds since the call began, strictly increasing within one call.
    async fn progress(&self, elapsed: f64, message: &str);
}

/// Milestones a call is sent; more than this many unread ones are dropped.
const QUEUE: usize = 64;
const FLUSH: Duration = Duration::from_secs(1);

/// The end milestones are put into; cheap to clone, never blocks.
#[derive(Clone, Debug, Default)]
pub struct Milestones(Option<mpsc::Sender<String>>);

impl Milestones {
    /// Goes nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }
    pub fn say(&self, text: impl Into<String>) {
        if let Some(sender) = &self.0 {
            // A listener that far behind learns more from the next heartbeat.
            let _ = sender.try_send(text.into());
        }
    }
}

/// Runs what `call` makes of the milestones' end, relaying to `sink`, with a heartbeat after
/// `interval` of silence. Returns when the call has, at most a second later.
pub async fn relay<F, T>(
    sink: Option<Arc<dyn ProgressSink>>,
    interval: Duration,
    call: impl FnOnce(Milestones) -> F,
) -> T
where
    F: Future<Output = T>,
{
    let Some(sink) = sink else { return call(Milestones::none()).await };
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut speaker = tokio::spawn(speak(sink, interval, receiver, stopped));
    let answer = call(Milestones(Some(sender))).await;
    drop(stop);
    if tokio::time::timeout(FLUSH, &mut speaker).await.is_err() {
        speaker.abort();
    }
    answer
}

async fn speak(
    sink: Arc<dyn ProgressSink>,
    interval: Duration,
    mut milestones: mpsc::Receiver<String>,
    mut stopped: tokio::sync::oneshot::Receiver<()>,
) {
    let began = Instant::now();
    let mut last = 0.0_f64;
    let mut send = async |text: &str| {
        let mut elapsed = began.elapsed().as_secs_f64();
        if elapsed <= last {
            elapsed = last.next_up();
        }
        last = elapsed;
        sink.progress(elapsed, text).await;
    };
    loop {
        tokio::select! {
            biased;
            Some(text) = milestones.recv() => send(&text).await,
            _ = &mut stopped => break,
            () = tokio::time::sleep(interval) => {
                send(&format!("still running ({} s)", began.elapsed().as_secs())).await;
            }
        }
    }
    while let Ok(text) = milestones.try_recv() {
        send(&text).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(f64, String)>>, bool);

    #[async_trait]
    impl ProgressSink for Heard {
        async fn progress(&self, elapsed: f64, message: &str) {
            self.0.lock().unwrap().push((elapsed, message.to_owned()));
            if self.1 {
                std::future::pending::<()>().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn milestones_then_heartbeats_strictly_increasing() {
        let heard = Arc::new(Heard::default());
        let answer = relay(
            Some(heard.clone() as Arc<dyn ProgressSink>),
            Duration::from_secs(10),
            async |m: Milestones| {
                m.say("spawned");
                m.say("committed");
                tokio::time::sleep(Duration::from_secs(25)).await;
                m.say("opened");
                7
            },
        )
        .await;
        assert_eq!(answer, 7);
        let heard = heard.0.lock().unwrap();
        let texts: Vec<&str> = heard.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, ["spawned", "committed", "still running (10 s)", "still running (20 s)", "opened"]);
        assert!(heard.windows(2).all(|w| w[0].0 < w[1].0), "{heard:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_stopped_reading_costs_a_second() {
        let stuck = Arc::new(Heard(Mutex::default(), true));
        let began = Instant::now();
        let call = async |m: Milestones| {
            m.say("spawned");
            tokio::time::sleep(Duration::from_secs(2)).await;
        };
        relay(Some(stuck as Arc<dyn ProgressSink>), Duration::from_secs(10), call).await;
        assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
    }
}
