//! Intake, scheduler, the step loop, output.
