//! Whether a directory is on another machine. A file that another process has made may show late there: an NFS client
//! remembers for up to a minute that a name was not there.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The kernel's names for file systems on other machines. One in user space (`fuse`) may be on another machine, too.
const REMOTE: [&str; 13] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "virtiofs",
];

/// Whether a file is on another machine. No, where the kernel does not tell.
pub(crate) fn is_remote(file: &Metadata) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    has_remote(&mounts, &device(file.dev()))
}

/// A device in the notation of `mountinfo`.
fn device(dev: u64) -> String {
    let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff);
    let minor = (dev & 0xff) | ((dev >> 12) & 0xffff_ff00);
    format!("{major}:{minor}")
}

/// Whether a device is mounted from another machine. A line is `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS…] - TYPE
/// SOURCE …`.
fn has_remote(mounts: &str, device: &str) -> bool {
    mounts.lines().any(|line| {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
        line.split(' ').nth(2) == Some(device) && (REMOTE.contains(&kind) || kind.starts_with("fuse"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
        40 22 0:53 / /mnt/jobs rw,relatime shared:20 - nfs4 nas:/jobs rw,vers=4.2\n\
        41 22 0:54 / /mnt/home rw - fuse.sshfs me@host:/ rw\n\
        42 22 0:55 / /tmp rw - tmpfs tmpfs rw\n";

    #[test]
    fn a_device_mounted_from_another_machine_is_remote() {
        for (device, is) in
            [("254:1", false), ("0:53", true), ("0:54", true), ("0:55", false), ("9:9", false)]
        {
            assert_eq!(has_remote(MOUNTS, device), is, "{device}");
        }
        assert_eq!(device((254 << 8) | 1), "254:1");
    }
}
