//! Lists the differences between the profiles of two executions of a program. Any difference shows that they were not the same execution.

use crate::model::{ImageProfile, Profile, UnitProfile};
use crate::paths::FunctionPaths;
use std::collections::BTreeMap;
use trodden_unit::{FunctionMap, MapError};

/// Lists the functions whose edge counts differ between two profiles of one program. Images are matched by path, since instrumented copies
/// of an image have different identities.
pub fn edge_differences(one: &Profile, other: &Profile) -> Result<Vec<String>, MapError> {
    let known: BTreeMap<&str, &ImageProfile> = other.images.iter().map(|i| (i.path.as_str(), i)).collect();
    let mut out = Vec::new();
    for image in &one.images {
        let Some(same) = known.get(image.path.as_str()) else {
            out.push(format!("`{}` ran in only one of the two runs", image.path));
            continue;
        };
        for ((a, f), (b, g)) in list_functions(image).zip(list_functions(same)) {
            let edges = |unit: &UnitProfile, function| Ok(FunctionPaths::decode(function, unit.counts_of(function))?.edges);
            let (mine, own): (Result<Vec<u64>, MapError>, Result<Vec<u64>, MapError>) = (edges(a, f), edges(b, g));
            if mine? != own? {
                out.push(format!("function `{}` has different edge counts", f.name));
            }
        }
    }
    if one.images.len() != other.images.len() {
        out.push(describe_image_difference(one, other));
    }
    Ok(out)
}

fn list_functions(image: &ImageProfile) -> impl Iterator<Item = (&UnitProfile, &FunctionMap)> {
    image.units.iter().flat_map(|unit| unit.map.functions.iter().map(move |f| (unit, f)))
}

fn describe_image_difference(one: &Profile, other: &Profile) -> String {
    format!("one run has {} images, the other {}", one.images.len(), other.images.len())
}

/// Lists the functions whose path counts differ between two profiles of the same images.
pub fn path_differences(one: &Profile, other: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    let known: BTreeMap<_, _> = other.images.iter().map(|i| (i.identity, i)).collect();
    for image in &one.images {
        let Some(same) = known.get(&image.identity) else {
            out.push(format!("`{}` ran in only one of the two runs", image.path));
            continue;
        };
        let pairs = image.units.iter().zip(&same.units);
        out.extend(pairs.flat_map(|(a, b)| list_differing_functions(a, b)));
    }
    if one.images.len() != other.images.len() {
        out.push(describe_image_difference(one, other));
    }
    out
}

fn list_differing_functions(one: &UnitProfile, other: &UnitProfile) -> Vec<String> {
    let functions = one.map.functions.iter().filter(|f| one.counts_of(f).ne(other.counts_of(f)));
    functions.map(|f| format!("function `{}` has different path counts", f.name)).collect()
}
