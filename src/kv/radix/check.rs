use super::{Children, Parent, RadixTree};

impl RadixTree {
    /// Recounts everything from scratch, and says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = Seen::default();
        for (namespace, children) in &self.namespaces {
            if children.is_empty() {
                return Err(format!("namespace {namespace} is kept for nothing"));
            }
            self.check_children(Parent::Namespace(*namespace), children, 0, &mut seen)?;
        }
        let placed = self.places.iter().filter(|place| place.node.is_some()).count();
        equal("nodes", seen.nodes, self.nodes.len() - self.vacant.len())?;
        equal("blocks with a place", seen.blocks, placed)?;
        equal("blocks", seen.blocks, self.blocks)?;
        equal("protected blocks", seen.protected, self.protected)?;
        equal("evictable leaves", seen.leaves, self.leaves.len())
    }

    /// Gives back the locks below.
    fn check_children(
        &self,
        parent: Parent,
        children: &Children,
        start: usize,
        seen: &mut Seen,
    ) -> Result<u32, String> {
        let mut locks = 0;
        for (key, id) in children {
            let node = self.node(*id);
            let say = |what: &str| Err(format!("{what} in the node of block {:?}", node.blocks.first()));
            if node.parent != parent || node.start != start || node.blocks.is_empty() {
                return say("wrong place");
            }
            if node.tokens.len() != node.blocks.len() * self.block_size || !node.tokens.starts_with(key) {
                return say("wrong tokens");
            }
            for (depth, block) in (start..).zip(&node.blocks) {
                let place = &self.places[*block as usize];
                if (place.node, place.depth) != (Some(*id), depth) {
                    return say("lost block");
                }
            }
            let end = start + node.blocks.len();
            let below = self.check_children(Parent::Node(*id), &node.children, end, seen)?;
            let own = self.locks_on(&node.blocks);
            if (node.own_locks, node.lock_ref) != (own, own + below) {
                return say("wrong lock count");
            }
            let unlocked = node.blocks.iter().rev().take_while(|b| self.places[**b as usize].locks == 0);
            let locked = if below > 0 { node.blocks.len() } else { node.blocks.len() - unlocked.count() };
            if node.locked != locked {
                return say("wrong protection");
            }
            let ranked = node.children.is_empty() && locked < node.blocks.len();
            if node.rank != ranked.then(|| self.rank(*id))
                || node.rank.is_some_and(|rank| !self.leaves.contains(&rank))
            {
                return say("wrong rank");
            }
            seen.nodes += 1;
            seen.blocks += node.blocks.len();
            seen.protected += locked;
            seen.leaves += usize::from(ranked);
            locks += own + below;
        }
        Ok(locks)
    }
}

#[derive(Default)]
struct Seen {
    nodes: usize,
    blocks: usize,
    protected: usize,
    leaves: usize,
}

fn equal(what: &str, found: usize, counted: usize) -> Result<(), String> {
    if found == counted { Ok(()) } else { Err(format!("{found} {what}, counted {counted}")) }
}
