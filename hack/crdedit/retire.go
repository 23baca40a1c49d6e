package main

import (
	"errors"
	"maps"
	"slices"
)

// retire adds to a CRD a version that is no longer served, for one release after it was last served. The Operator
// Lifecycle Manager updates the CRD before the new manager takes over, and fails permanently when a version is missing in
// which objects are still stored: that the old manager may still be migrating them is no reason for it to wait.
//
// The API server needs the version to read such objects. It converts them by changing the name only (conversion
// strategy None), so the version has the schema of the others: an object loses nothing when it is read, and OLM v1, which
// compares the schemas of every version with those that are installed, finds no field missing.
func retire(crd map[string]any, name string) error {
	versions := slices.DeleteFunc(versionsOf(crd), func(version any) bool { return descend(version)["name"] == name })
	index := slices.IndexFunc(versions, func(version any) bool { return descend(version)["storage"] == true })
	if index < 0 {
		return errors.New("the CRD has no other version in which objects are stored")
	}
	retired := maps.Clone(descend(versions[index]))
	maps.Copy(retired, map[string]any{"name": name, "served": false, "storage": false})
	descend(crd, "spec")["versions"] = append(versions, retired)
	return nil
}
