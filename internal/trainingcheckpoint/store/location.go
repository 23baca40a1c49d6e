// Package store keeps checkpoints in object stores: Amazon S3 and servers that speak its protocol, Google Cloud Storage
// and Azure Blob Storage. Contents are addressed by their SHA-256, so that what is there already is not sent again, and a
// checkpoint exists once its manifest does, which is written last.
//
// Nothing of the providers' libraries is set up before a Store is first used.
package store

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Schemes of the URLs of stores.
const (
	schemeS3    = "s3"
	schemeGCS   = "gs"
	schemeAzure = "azblob"
)

// Location is where objects lie: a bucket (Azure: a container) and what the names of the objects begin with.
type Location struct {
	Scheme, Bucket string
	// Prefix without slashes at its ends; may be empty.
	Prefix string
	// Region of the bucket (S3); empty for that of the environment, or the one that the bucket says.
	Region string
	// Endpoint is the URL of a server other than the provider's own.
	Endpoint string
	// Account of the container (Azure).
	Account string
}

// IsURL says whether text is a URL rather than a path in a volume.
func IsURL(text string) bool { return strings.Contains(text, "://") }

// ParseLocation reads a URL such as s3://bucket/prefix?region=R&endpoint=U, gs://bucket/prefix or
// azblob://container/prefix?account=A.
func ParseLocation(text string) (Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Location{}, fmt.Errorf("%q is no URL", text)
	}
	l := Location{Scheme: u.Scheme, Bucket: u.Host, Prefix: strings.Trim(path.Clean("/"+u.Path), "/")}
	if l.Bucket == "" {
		return l, fmt.Errorf("%q names no bucket: write for example s3://bucket/prefix", text)
	}
	if u.User != nil {
		return l, fmt.Errorf("the URL of bucket %s has credentials in it: put them into a Secret", l.Bucket)
	}
	for name, values := range u.Query() {
		switch {
		case name == "region" && l.Scheme == schemeS3:
			l.Region = values[0]
		case name == "endpoint":
			l.Endpoint = strings.TrimSuffix(values[0], "/")
		case name == "account" && l.Scheme == schemeAzure:
			l.Account = values[0]
		default:
			return l, fmt.Errorf("the URL of bucket %s has the parameter %q, which %s does not know", l.Bucket, name, l.Scheme)
		}
	}
	if l.Endpoint != "" {
		e, err := url.Parse(l.Endpoint)
		if err != nil || e.Host == "" || (e.Scheme != "http" && e.Scheme != "https") {
			return l, fmt.Errorf("the endpoint of bucket %s is no URL that begins with http:// or https://", l.Bucket)
		}
	}
	switch l.Scheme {
	case schemeS3, schemeGCS:
	case schemeAzure:
		if l.Account == "" && l.Endpoint == "" {
			return l, fmt.Errorf("%q lacks the storage account: add ?account=NAME", text)
		}
	default:
		return l, fmt.Errorf("%q begins with none of s3://, gs:// and azblob://", text)
	}
	return l, nil
}

// URI names an object or a prefix for people, and for resumeFrom.
func (l Location) URI(key string) string { return l.Scheme + "://" + l.Bucket + "/" + key }

// String is the whole of the location without its parameters.
func (l Location) String() string { return strings.TrimSuffix(l.URI(l.Prefix), "/") }

// at names the location in messages.
func (l Location) at() string {
	kind := "bucket "
	if l.Scheme == schemeAzure {
		kind = "container "
	}
	name := kind + l.Bucket
	switch {
	case l.Endpoint != "":
		name += " at " + l.Endpoint
	case l.Account != "":
		name += " of storage account " + l.Account
	}
	return name
}

// server names who answers, or does not.
func (l Location) server() string {
	switch {
	case l.Endpoint != "":
		return l.Endpoint
	case l.Scheme == schemeGCS:
		return "Google Cloud Storage"
	case l.Scheme == schemeAzure:
		return "the storage account " + l.Account
	}
	return "Amazon S3"
}
