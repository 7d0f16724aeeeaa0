//! Frames leave whole or not at all.

use std::io::{self, Write};

/// Keeps what is written until it is flushed, and then writes it at once. What was never flushed, as
/// of a frame that a panic interrupted, is dropped: it would land on the terminal given back.
pub struct Outlet<W> {
    terminal: W,
    held: Vec<u8>,
}

impl<W> Outlet<W> {
    pub fn new(terminal: W) -> Self {
        Self { terminal, held: Vec::with_capacity(1 << 16) }
    }
}

impl<W: Write> Write for Outlet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Also after an error nothing of it is written a second time.
        let held = std::mem::take(&mut self.held);
        let written = self.terminal.write_all(&held).and_then(|()| self.terminal.flush());
        self.held = held;
        self.held.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Writes(Rc<RefCell<Vec<Vec<u8>>>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_frame_is_one_write_and_half_a_frame_none() {
        let writes = Writes::default();
        let mut outlet = Outlet::new(writes.clone());
        outlet.write_all(b"one").unwrap();
        outlet.write_all(b" frame").unwrap();
        outlet.flush().unwrap();
        outlet.write_all(b"half a").unwrap();
        drop(outlet);
        assert_eq!(*writes.0.borrow(), [b"one frame".to_vec()]);
    }
}
