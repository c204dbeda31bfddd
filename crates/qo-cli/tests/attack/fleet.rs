//! A fleet under kills, stops, restarts, full disks and wrong clocks.
