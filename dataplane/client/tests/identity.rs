//! As whom a session attaches and which way it is bound to, by the program and by its environment.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::process::Command;

use madplane_client::{
    BindError, OpenError, OwnPath, PATH_VARIABLE, PlanePaths, RawSession, Session, SessionOptions,
    TENANT_VARIABLE, TenantName,
};
use support::FakePlane;

fn named(tenant: &str) -> SessionOptions {
    SessionOptions { tenant: TenantName::new(tenant).unwrap(), ..SessionOptions::default() }
}

#[test]
fn a_session_attaches_as_the_tenant_that_the_program_names() {
    let plane = FakePlane::silent();
    let _blue = Session::open(&plane.paths, "", &named("blue")).unwrap();
    let _raw = RawSession::open_as(&plane.paths, "", 0, TenantName::new("red").unwrap()).unwrap();
    let _nobody = plane.open();
    assert_eq!(plane.desk.lock().unwrap().tenants, ["blue", "red", ""]);
    let error = Session::open(&plane.paths, "", &named("closed")).unwrap_err();
    assert_eq!((error.errno(), error.to_string().as_str()), (13, "user 7 may not be tenant closed"));
}

#[test]
fn a_path_is_bound_replaced_and_taken_away() {
    let plane = FakePlane::silent();
    let session = plane.open();
    session.bind_path(&[1, 2, 3], true).unwrap();
    session.bind_path(&[1], false).unwrap();
    session.bind_path(&[], false).unwrap();
    let refused = session.bind_path(&[1, 99], false).unwrap_err();
    assert!(matches!(&refused, BindError::Refused { errno: 22, text } if text.contains("hop 2")));
    assert_eq!(session.bind_path(&[1; 64], false), Err(BindError::TooLong(64)));
    assert_eq!(
        plane.desk.lock().unwrap().paths,
        [(0, vec![1, 2, 3], true), (0, vec![1], false), (0, vec![], false)]
    );
    session.close();
    assert_eq!(session.bind_path(&[1], false), Err(BindError::Gone));
}

/// Runs the ignored test `name` of this file with an environment.
fn child(name: &str, plane: &FakePlane, environment: &[(&str, &str)]) {
    let root = plane.paths.run_dir().parent().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("MADPLANE_RUNTIME_DIR", root)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn paths_of_child() -> PlanePaths {
    PlanePaths::new("test").unwrap()
}

#[test]
fn the_environment_names_tenant_and_path_unless_the_program_does() {
    let plane = FakePlane::silent();
    let environment = [(TENANT_VARIABLE, "green"), (PATH_VARIABLE, "1,7")];
    child("child_of_an_environment", &plane, &environment);
    let desk = plane.desk.lock().unwrap();
    assert_eq!(desk.tenants, ["green", "green", "blue"]);
    assert_eq!(desk.paths, [(0, vec![1, 7], false), (1, vec![1, 7], false)]);
}

#[test]
#[ignore = "run by another test"]
fn child_of_an_environment() {
    let paths = paths_of_child();
    let _one = Session::open(&paths, "", &SessionOptions::default()).unwrap();
    let _raw = RawSession::open(&paths, "", 0).unwrap();
    let _own = Session::open(&paths, "", &SessionOptions { path: OwnPath::None, ..named("blue") }).unwrap();
}

#[test]
fn an_environment_that_makes_no_sense_is_refused_by_name() {
    let plane = FakePlane::silent();
    child("child_of_a_wrong_path", &plane, &[(PATH_VARIABLE, "1,0")]);
    child("child_of_a_wrong_tenant", &plane, &[(TENANT_VARIABLE, "a b")]);
    child("child_of_a_refused_path", &plane, &[(PATH_VARIABLE, "1,99")]);
    assert_eq!(plane.desk.lock().unwrap().tenants, [""], "only the last one came as far as the plane");
}

fn refused() -> OpenError {
    Session::open(&paths_of_child(), "", &SessionOptions::default()).unwrap_err()
}

#[test]
#[ignore = "run by another test"]
fn child_of_a_wrong_path() {
    assert!(refused().to_string().starts_with("MADPLANE_PATH=1,0 is no path"));
}

#[test]
#[ignore = "run by another test"]
fn child_of_a_wrong_tenant() {
    assert!(refused().to_string().starts_with("\"a b\" is no name of a tenant"));
}

#[test]
#[ignore = "run by another test"]
fn child_of_a_refused_path() {
    let error = refused();
    assert!(matches!(error, OpenError::Bind(BindError::Refused { .. })) && error.errno() == 22);
}
