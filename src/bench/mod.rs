//! Speed measurements and their report.
