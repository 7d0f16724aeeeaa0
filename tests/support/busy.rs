//! A scheduler in the middle of its work, for what a plan costs and allocates.

use glassbox::base::Clock;
use glassbox::engine::{Bounds, Intake, Lengths, Plan, Scheduler, Work};
use glassbox::kv::{BlockManager, KvConfig};
use glassbox::protocol::{Command, Prompt, Request, RequestId, SamplingParams, SchedulerSettings};
use glassbox::text::TextModel;
use std::sync::Arc;

const BLOCK_SIZE: usize = 16;
const PROMPT: usize = 200;

/// So many sequences that decode a token a step, and so many that wait.
pub struct Busy {
    pub scheduler: Scheduler,
    kv: BlockManager,
    pub plan: Plan,
}

impl Busy {
    pub fn new(running: usize, waiting: usize) -> Self {
        let mut busy = Self::arriving(running, waiting);
        // Prompts first, then a few decodes so that every buffer has its size.
        (0..40).for_each(|_| busy.step());
        busy
    }

    /// Before the first step.
    pub fn arriving(running: usize, waiting: usize) -> Self {
        let context = 1 << 20;
        let settings = SchedulerSettings {
            max_num_seqs: running,
            max_num_batched_tokens: running * PROMPT + 64,
            ..Default::default()
        };
        let bounds = Bounds { tokens: 1 << 24, outputs: 1 << 20, context };
        let mut scheduler = Scheduler::new(settings, bounds);
        let kv = BlockManager::new(KvConfig::new(running * 80 + 2, BLOCK_SIZE));
        let lengths = Lengths { context, pool: context };
        let intake = Intake::new(Arc::new(TextModel::bytes()), Clock::virtual_time(), lengths, BLOCK_SIZE);
        for id in 0..(running + waiting) as u64 {
            let tokens = (0..PROMPT as u32).map(|i| (i * 7 + id as u32) % 251).collect();
            let request = Request::new(RequestId(id), Prompt::Tokens(tokens), SamplingParams::default());
            match intake.take(Command::Submit(Box::new(request))) {
                Work::Add(_, sequence) => _ = scheduler.push(*sequence),
                _ => unreachable!("the request is in order"),
            }
        }
        Self { scheduler, kv, plan: Plan::default() }
    }

    pub fn schedule(&mut self) {
        self.scheduler.schedule(0, &mut self.kv, &mut self.plan);
    }

    /// What an engine does with the plan, as far as the scheduler sees it.
    pub fn account(&mut self) {
        for row in &self.plan.rows {
            if let Some(seq) = self.scheduler.sequences.get_mut(row.key) {
                seq.in_flight = 0;
                seq.push(7);
            }
        }
    }

    pub fn step(&mut self) {
        self.schedule();
        self.account();
    }
}
