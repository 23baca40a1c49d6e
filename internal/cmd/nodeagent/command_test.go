package nodeagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFlagsThatAreWrongAreNamed(t *testing.T) {
	right := options{node: "spot-1", metadataURL: "http://169.254.169.254"}
	assert.NoError(t, right.validate())
	for want, change := range map[string]func(*options){
		"--node-name: is not set: set it, or the environment variable NODE_NAME": func(o *options) { o.node = "" },
		`--metadata-url: "169.254.169.254" is no URL such as http://169.254`:     func(o *options) { o.metadataURL = "169.254.169.254" },
		`--metadata-url: "ftp://host" is no URL`:                                 func(o *options) { o.metadataURL = "ftp://host" },
		`--metadata-url: "http://" is no URL`:                                    func(o *options) { o.metadataURL = "http://" },
	} {
		o := right
		change(&o)
		assert.ErrorContains(t, o.validate(), want)
	}
}
