package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// export writes the files that a commit of the git repository root has below the given paths (all files without a path)
// into folder, which it creates. The error for a commit that the clone lacks says how to fetch it.
func export(ctx context.Context, root, commit, folder string, paths ...string) error {
	if git(ctx, root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		return missing(ctx, root, commit)
	}
	var archive, message bytes.Buffer
	pack := git(ctx, root, append([]string{"archive", "--format=tar", commit, "--"}, paths...)...)
	pack.Stdout, pack.Stderr = &archive, &message
	if err := pack.Run(); err != nil {
		return fmt.Errorf("read %s of commit %s: %w: %s", strings.Join(paths, ", "), commit, err, strings.TrimSpace(message.String()))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	extract := exec.CommandContext(ctx, "tar", "--extract", "--no-same-owner", "--directory", folder)
	extract.Stdin = &archive
	if output, err := extract.CombinedOutput(); err != nil {
		return fmt.Errorf("extract commit %s: %w: %s", commit, err, strings.TrimSpace(string(output)))
	}
	return nil
}

func missing(ctx context.Context, root, commit string) error {
	shallow, err := git(ctx, root, "rev-parse", "--is-shallow-repository").Output()
	if err != nil {
		return fmt.Errorf("%s is not a git repository, so commit %s cannot be read from it: clone the repository", root, commit)
	}
	if strings.TrimSpace(string(shallow)) == "true" {
		return fmt.Errorf("commit %s is not in this clone, which is shallow: run git fetch --unshallow", commit)
	}
	return fmt.Errorf("commit %s is not in this clone: run git fetch; if it is still missing, check the hash", commit)
}

// git works on a repository that another user has checked out as well, as happens in containers.
func git(ctx context.Context, root string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "git", append([]string{"-C", root, "-c", "safe.directory=*"}, args...)...)
}
