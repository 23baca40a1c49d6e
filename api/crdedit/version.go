package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// addition is a version to add to a CRD: a copy of another one under a second name. The API server converts between the
// two by changing the name only (conversion strategy None), so they stay the same in everything else, and no Go types
// are needed for the copy.
type addition struct {
	// copyOf is the version to copy, and name that of the copy.
	copyOf, name string
	// storage is the version in which the API server stores objects: one of the two.
	storage string
	// warning marks the copy as deprecated; the API server sends it to everyone who uses the copy. Empty: not deprecated.
	warning string
}

func (a addition) apply(crd map[string]any) error {
	switch {
	case a.copyOf == "" || a.name == "" || a.copyOf == a.name:
		return errors.New("--copy and --name must name two versions")
	case a.storage != a.copyOf && a.storage != a.name:
		return fmt.Errorf("--storage: must be %s or %s", a.copyOf, a.name)
	}
	named := func(name string) func(version any) bool {
		return func(version any) bool { return descend(version)["name"] == name }
	}
	versions := slices.DeleteFunc(versionsOf(crd), named(a.name))
	index := slices.IndexFunc(versions, named(a.copyOf))
	if index < 0 {
		return fmt.Errorf("--copy: the CRD has no version %s", a.copyOf)
	}
	original := descend(versions[index])
	added := maps.Clone(original)
	added["name"] = a.name
	if a.warning != "" {
		added["deprecated"] = true
		added["deprecationWarning"] = a.warning
	}
	versions = append(versions, added)
	for _, version := range versions {
		descend(version)["storage"] = descend(version)["name"] == a.storage
	}
	descend(crd, "spec")["versions"] = versions
	return nil
}
