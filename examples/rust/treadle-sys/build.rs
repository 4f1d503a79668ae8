//! Links the shared library that pkg-config finds (built with -DTREADLE_SHARED=ON).
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let found = Command::new("pkg-config")
        .args(["--libs", "treadle"])
        .output()
        .expect("pkg-config");
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    for flag in String::from_utf8(found.stdout).unwrap().split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(name) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={name}");
        }
    }
}
