//! Files of tenants and of partitions: read whole or not at all.
//!
//! Runs on the caller's thread. Putting the tenants in is [`crate::AdminClient::tenants_load`].

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use super::partitions::Partitions;
use super::{Names, RawTenant, Tenant, parse_line};
use crate::route_file::FileError;

/// Reads a file of tenants, each with the number of its line; names are looked up by `names`.
///
/// # Errors
/// The first line that is wrong.
pub fn read_tenants(file: &Path, names: &mut impl Names) -> Result<Vec<(u32, Tenant)>, FileError> {
    let mut tenants = Vec::new();
    for (line, text) in (1u32..).zip(text_of(file)?.lines()) {
        match parse_line(text, names) {
            Ok(tenant) => tenants.extend(tenant.map(|tenant| (line, tenant))),
            Err(reason) => return Err(at_line(file, line, &reason)),
        }
    }
    once_each(file, &tenants)?;
    Ok(tenants)
}

/// Reads OpenSM's `partitions.conf`.
///
/// # Errors
/// The first line that OpenSM would stop at.
pub fn read_partitions(file: &Path) -> Result<Partitions, FileError> {
    Partitions::parse(&text_of(file)?).map_err(|error| at_line(file, error.line, &error.text))
}

/// One tenant for each partition of a file, called like it (other characters than those of a tenant's name become `-`),
/// full member of it and of nothing else. Who is in a partition is still said by the P_Key tables of the ports.
///
/// # Errors
/// Two partitions would be called the same, or one has no name that a tenant can have.
pub fn tenants_of(file: &Path, partitions: &Partitions) -> Result<Vec<(u32, Tenant)>, FileError> {
    let mut tenants = Vec::new();
    for partition in partitions.iter() {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name: String = partition.name().chars().map(|c| if fits(c) { c } else { '-' }).collect();
        let raw = RawTenant { p_keys: vec![u64::from(partition.p_key() | 0x8000)], ..RawTenant::new(&name) };
        let tenant = Tenant::try_from(raw).map_err(|error| at_line(file, partition.line(), &error))?;
        tenants.push((partition.line(), tenant));
    }
    once_each(file, &tenants)?;
    Ok(tenants)
}

fn text_of(file: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(file).map_err(|source| FileError::Io { file: file.display().to_string(), source })
}

fn at_line(file: &Path, line: u32, reason: &dyn Display) -> FileError {
    FileError::Line { file: file.display().to_string(), line, reason: reason.to_string() }
}

fn once_each(file: &Path, tenants: &[(u32, Tenant)]) -> Result<(), FileError> {
    let mut lines: HashMap<&str, u32> = HashMap::new();
    for (line, tenant) in tenants {
        if let Some(before) = lines.insert(tenant.name(), *line) {
            let name = tenant.name();
            let reason = format!("tenant {name} is given twice, in line {before} already");
            return Err(at_line(file, *line, &reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::NumbersOnly;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn a_file_is_read_whole_or_its_wrong_line_is_named() {
        let (_directory, path) = file("# two\nred pkey=1\n\nblue pkey=2 # x\n");
        let read = read_tenants(&path, &mut NumbersOnly).unwrap();
        let names: Vec<_> = read.iter().map(|(line, tenant)| (*line, tenant.name())).collect();
        assert_eq!(names, [(2, "red"), (4, "blue")]);
        for (text, expected) in [
            ("red\nblue pkey=0\n", "file:2: P_Key 0x0000 is none"),
            ("red\n\nred\n", "file:3: tenant red is given twice, in line 1 already; nothing was applied"),
        ] {
            let (_directory, path) = file(text);
            let error = read_tenants(&path, &mut NumbersOnly).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
        assert!(read_tenants(Path::new("no/such"), &mut NumbersOnly).is_err());
    }

    #[test]
    fn each_partition_becomes_a_tenant() {
        let (_directory, path) = file("io nodes=0x10: ALL;\nB: ALL=full;\n");
        let partitions = read_partitions(&path).unwrap();
        let tenants = tenants_of(&path, &partitions).unwrap();
        let lines: Vec<String> =
            tenants.iter().map(|(line, tenant)| format!("{line} {}", tenant.to_line())).collect();
        let rest = "classes=all smp=none priority=bulk";
        let expected = [("0 Default", 0xffff), ("1 io-nodes", 0x8010), ("2 B", 0x8001)];
        assert_eq!(lines, expected.map(|(name, key): (&str, u16)| format!("{name} pkey={key:#06x} {rest}")));
        let (_directory, path) = file("a b=1: ALL;\na-b=2: ALL;\n");
        let error = tenants_of(&path, &read_partitions(&path).unwrap()).unwrap_err().to_string();
        assert!(error.contains("file:2: tenant a-b is given twice, in line 1 already"), "{error}");
        let (_directory, path) = file("a=1: ALL;\nb=2: host;\n");
        assert!(read_partitions(&path).unwrap_err().to_string().contains("file:2: \"host\" is no member"));
    }
}
