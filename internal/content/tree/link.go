package tree

import (
	"errors"
	"path"
	"strings"
)

// CheckLink returns an error, without the name of the link in front, when a symbolic link leads out of the tree. Its target may begin
// with .. as often as there are directories above the link. Further ones are refused: behind the name of another link they may lead
// anywhere.
func CheckLink(link, target string) error {
	depth, below := strings.Count(path.Clean(link), "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if below {
				return errors.New("has .. behind a name in its target: write the target without")
			}
			depth--
		default:
			below = true
		}
	}
	if target == "" || path.IsAbs(target) || depth < 0 {
		return errors.New("leads out of the directory: replace it by a copy of the file")
	}
	return nil
}
