use crate::weights::checkpoint::Damage;

/// Reads little-endian values off the front of a file, and never past its end.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn bytes_left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let left = self.bytes_left();
        if len > left {
            return Err(Damage::at(self.at, format!("{len} bytes are needed, {left} are left in the file")));
        }
        let taken = &self.bytes[self.at..][..len];
        self.at += len;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        Ok(self.take(N)?.try_into().expect("take returned N bytes"))
    }

    pub fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many items follow, each of at least `item_bytes`: refused when the file has no room for them.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, Damage> {
        let start = self.at;
        let count = self.u64()?;
        let most = self.bytes_left() / item_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(Damage::at(start, format!("it claims {count} items, the file has room for {most}"))),
        }
    }

    /// A length and that many bytes.
    pub fn string(&mut self) -> Result<&'a [u8], Damage> {
        let start = self.at;
        let len = self.u64()?;
        let left = self.bytes_left();
        match usize::try_from(len) {
            Ok(len) if len <= left => self.take(len),
            _ => Err(Damage::at(start, format!("a string of {len} bytes, {left} are left in the file"))),
        }
    }

    /// A string that names something.
    pub fn name(&mut self) -> Result<&'a str, Damage> {
        let start = self.at;
        std::str::from_utf8(self.string()?)
            .map_err(|_| Damage::at(start, "a name that is not UTF-8".to_owned()))
    }
}
