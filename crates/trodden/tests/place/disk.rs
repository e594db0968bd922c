//! Small disks that tests make full or read-only.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A small disk, mounted on a folder until this value is dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk. Returns `None` if this process has no right to mount disks.
    pub fn mount(folder: PathBuf, size: &str) -> Option<Disk> {
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&folder).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped, cannot mount");
            return None;
        }
        Some(Disk(folder))
    }

    pub fn forbid_writing(&self) {
        assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap().success());
    }

    pub fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        while std::io::Write::write_all(&mut filler, &[0; 1024]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
