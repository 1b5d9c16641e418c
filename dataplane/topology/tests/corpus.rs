//! Every collected file is accepted with the counts stated here, or refused with the reason stated here.
//!
//! The folder is found by `MADPLANE_SHARED`, else beside the workspace; without it the tests say so and pass.
#![allow(clippy::print_stdout, reason = "tests say what they skip and which seed they use")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use madplane_topology::{ParseOptions, Parsed, check, parse, to_ibnetdiscover};

/// What has to come of a file.
enum Outcome {
    Accepted(Counts),
    /// Refused with this error, word for word; with stubs on request, accepted with these counts.
    RefusedUnlessStubbed(&'static str, Counts),
    Refused(&'static str),
}

struct Counts {
    switches: usize,
    adapters: usize,
    links: usize,
    islands: usize,
    /// One fragment of each warning, in order.
    warnings: &'static [&'static str],
}

use Outcome::{Accepted, Refused, RefusedUnlessStubbed};

const fn counts(switches: usize, adapters: usize, links: usize) -> Counts {
    Counts { switches, adapters, links, islands: 1, warnings: &[] }
}

const TABLE: &[(&str, Outcome)] = &[
    ("ndr-dgx-582ca-2025.ibnetdiscover", Accepted(counts(40, 582, 1114))),
    ("lonely-ca-no-link-2025.ibnetdiscover", Accepted(counts(0, 1, 0))),
    ("qdr-fdr10-144ca-2014.ibnetdiscover", Accepted(counts(8, 144, 192))),
    (
        "manpage-grouped-voltaire-2007.ibnetdiscover",
        Accepted(Counts {
            warnings: &[
                "line 15, column 1: 4xSDR here but 1xSDR on line 26; 1xSDR is used",
                "line 18, column 1: 4xSDR here but 1xSDR on line 52; 1xSDR is used",
            ],
            ..counts(2, 4, 7)
        }),
    ),
    ("missing-sysimgguid-2009.ibnetdiscover", Accepted(counts(1, 2, 2))),
    (
        "loopback-cables-and-stderr-2016.ibnetdiscover",
        Accepted(Counts {
            warnings: &["line 1, column 1: line not understood and ignored: \"src/query_smp.c:195"],
            ..counts(2, 6, 10)
        }),
    ),
    ("sun-dcs36-no-blank-lines.ibnetdiscover", Accepted(counts(1, 1, 1))),
    (
        "voltaire-atlas-2006-excerpt.ibnetdiscover",
        RefusedUnlessStubbed(
            "line 12, column 1: 10 nodes named as peer are never defined: \"H-0002c90200247010\", ",
            Counts {
                islands: 4,
                warnings: &[
                    "line 11, column 12: the guid 0x8f10400411a08 of node \"S-0008f104003f1e29\" differs from its id",
                    "line 12, column 1: node \"H-0002c90200247010\" is never defined; a stub with 1 ports stands in",
                    "line 13, column 1: node \"H-0002c9020024d5f8\" is never defined",
                    "line 14, column 1: node \"H-0002c90200246fbc\" is never defined",
                    "line 15, column 2: line not understood and ignored: \"...\"",
                    "line 16, column 1: node \"S-0008f104004125e2\" is never defined; a stub with 36 ports stands in",
                    "line 16, column 1: port 23 is cabled to something else on line 13; line ignored",
                    "line 17, column 1: node \"S-0008f10400411df2\" is never defined",
                    "line 18, column 1: node \"S-0008f10400411d40\" is never defined",
                    "line 18, column 1: port 21 is cabled to something else on line 14; line ignored",
                    "line 19, column 2: line not understood and ignored: \"...\"",
                    "line 20, column 1: node \"S-0008f1040040165b\" is never defined",
                    "line 21, column 1: node \"S-0008f1040040165a\" is never defined",
                    "line 22, column 1: node \"S-0008f10400401659\" is never defined",
                    "line 23, column 2: line not understood and ignored: \"...\"",
                    "line 29, column 1: the fabric is in 4 parts without a link between them: 8 nodes from line 11, ",
                    "line 30, column 1: node \"S-000b8cffff004663\" is never defined",
                ],
                ..counts(8, 5, 9)
            },
        ),
    ),
    ("ibsim-example-annotated.net", Accepted(counts(2, 2, 4))),
    ("ibsim-example-2sw2path4hca2port.net", Accepted(counts(2, 2, 6))),
    (
        "opensm-subnet-lst-mt43132.lst",
        Refused(
            "line 1, column 1: this looks like a subnet dump of OpenSM (.lst), which is not read yet; \
             wanted is plain ibnetdiscover output or an ibsim netfile",
        ),
    ),
    (
        "ibdm-4-ary-2-tree.topo",
        Refused(
            "line 2, column 4: this looks like an ibdm topology (.topo), which needs system definitions to expand; \
             wanted is plain ibnetdiscover output or an ibsim netfile",
        ),
    ),
    (
        "ibdm-rhino-based-512.topo",
        Refused(
            "line 17, column 3: this looks like an ibdm topology (.topo), which needs system definitions to expand; \
             wanted is plain ibnetdiscover output or an ibsim netfile",
        ),
    ),
    (
        "ports-report-format-p-option.txt",
        Refused(
            "line 1, column 1: this looks like the port report of ibnetdiscover -p, which does not describe nodes; \
             wanted is plain ibnetdiscover output or an ibsim netfile",
        ),
    ),
];

fn folder() -> Option<PathBuf> {
    let shared = match std::env::var_os("MADPLANE_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let folder = shared.join("fabrics");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no folder {}", folder.display());
    None
}

fn compare(file: &str, parsed: &Parsed, counts: &Counts) {
    let report = check(&parsed.topology);
    assert!(report.is_sound(), "{file}: {report}");
    assert_eq!(
        (report.switches, report.adapters, report.routers, report.links, report.islands.len()),
        (counts.switches, counts.adapters, 0, counts.links, counts.islands),
        "{file}: switches, adapters, routers, links, islands"
    );
    let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), counts.warnings.len(), "{file}: {warnings:#?}");
    for (warning, expected) in warnings.iter().zip(counts.warnings) {
        assert!(warning.starts_with(expected), "{file}: {warning}\nexpected: {expected}");
    }
    let text = to_ibnetdiscover(&parsed.topology);
    let again = parse(&text, &ParseOptions::default()).unwrap_or_else(|e| panic!("{file} emitted: {e}"));
    assert!(again.topology == parsed.topology, "{file}: emitted text reads back differently");
}

#[test]
fn every_collected_file_has_its_stated_outcome() {
    let Some(folder) = folder() else { return };
    for (file, outcome) in TABLE {
        let text = std::fs::read(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let result = parse(&text, &ParseOptions::default());
        match outcome {
            Accepted(counts) => compare(file, &result.unwrap_or_else(|e| panic!("{file}: {e}")), counts),
            Refused(reason) => assert_eq!(result.expect_err(file).to_string(), *reason, "{file}"),
            RefusedUnlessStubbed(reason, counts) => {
                let error = result.expect_err(file).to_string();
                assert!(error.starts_with(reason), "{file}: {error}");
                let options = ParseOptions { stub_undefined: true, ..ParseOptions::default() };
                compare(file, &parse(&text, &options).unwrap_or_else(|e| panic!("{file}: {e}")), counts);
            }
        }
    }
}

#[test]
fn no_file_of_the_folder_is_left_out_of_the_table() {
    let Some(folder) = folder() else { return };
    let present: BTreeSet<_> = std::fs::read_dir(folder)
        .expect("readable folder")
        .map(|entry| entry.expect("readable entry").file_name().into_string().expect("a UTF-8 name"))
        .filter(|name| name != "README.md")
        .collect();
    let listed: BTreeSet<_> = TABLE.iter().map(|(file, _)| (*file).to_string()).collect();
    assert_eq!(present, listed);
}
