//! The operations a decoder needs, on a device.
