use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time since the clock was made: real, or moved by hand so that tests never sleep.
#[derive(Clone, Debug)]
pub enum Clock {
    Wall(Instant),
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    pub fn wall() -> Self {
        Clock::Wall(Instant::now())
    }

    pub fn virtual_time() -> Self {
        Clock::Virtual(Arc::default())
    }

    pub fn now(&self) -> Duration {
        match self {
            Clock::Wall(start) => start.elapsed(),
            Clock::Virtual(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Moves a virtual clock forward; a wall clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Clock::Virtual(nanos) = self {
            nanos.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_by_hand() {
        let clock = Clock::virtual_time();
        let twin = clock.clone();
        clock.advance(Duration::from_millis(3));
        assert_eq!(twin.now(), Duration::from_millis(3));
    }
}
