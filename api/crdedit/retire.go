package main

import (
	"errors"
	"slices"
)

// retire adds to a CRD a version that is no longer served, for one release after it was last served. The Operator
// Lifecycle Manager updates the CRD before the new manager takes over, and fails for good when a version is missing in
// which objects are still stored: that the old manager may still be migrating them is no reason for it to wait.
//
// The API server needs the version to read such objects. It converts them by changing the name only (conversion
// strategy None), and what matters is the schema of the version that they are asked for in, so this one says nothing.
func retire(crd map[string]any, name string) error {
	versions := slices.DeleteFunc(versionsOf(crd), func(version any) bool { return descend(version)["name"] == name })
	if len(versions) == 0 {
		return errors.New("the CRD has no other version")
	}
	descend(crd, "spec")["versions"] = append(versions, map[string]any{
		"name": name, "served": false, "storage": false,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			"description": "This version is no longer served. It stays in the list for objects that were stored in it and not migrated yet.",
		}},
		"subresources": map[string]any{"status": map[string]any{}},
	})
	return nil
}
