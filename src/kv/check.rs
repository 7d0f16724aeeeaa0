use super::pool::tag;
use super::{BlockManager, BlockTable};

impl BlockManager {
    /// Recounts everything against the tables of all sequences: free + cached + owned = total, every
    /// reference count equals the number of owners, what is known is found, and host slots are in
    /// one place each. Says what is wrong.
    pub fn check<'a>(&self, tables: impl IntoIterator<Item = &'a BlockTable>) -> Result<(), String> {
        let blocks = self.pool.total() + 1;
        let mut owners = vec![(0u32, 0u128); blocks];
        for table in tables {
            for id in table.owned() {
                let (count, tags) = &mut owners[id as usize];
                *count += 1;
                *tags = tags.wrapping_add(tag(table.owner));
            }
            if table.owned().count() != table.len() {
                return Err(format!("the table of {} counts {} blocks", table.owner, table.len()));
            }
            if table.blocks().len() != table.stride() * self.config.groups.len() {
                return Err(format!("the tables of {} are not of one length", table.owner));
            }
        }
        let mut holds = vec![0; blocks];
        self.holds.iter().for_each(|id| holds[*id as usize] += 1);
        let mut pins = vec![0; self.config.host_blocks];
        self.pins.iter().for_each(|slot| pins[*slot as usize] += 1);
        self.pool.check(&owners, &holds)?;
        self.host.check(&pins)
    }

    /// Host slots of swapped-out sequences.
    #[cfg(test)]
    pub fn private_host_blocks(&self) -> usize {
        self.host.private() - self.leaving.len()
    }
}
