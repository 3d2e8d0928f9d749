// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestACommandMayLeaveAPluginRunning has a command like one that goes on writing its log.
func TestACommandMayLeaveAPluginRunning(t *testing.T) {
	dir := t.TempDir()
	command := fmt.Sprintf(`cd %s
	{ for i in $(seq 300); do
		if [ -e go ]; then echo still here && touch written; break; fi
		sleep 0.1
	done; touch ended; } &`, dir)
	if err := patient().Limits.shell(command); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := await(time.Minute, func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "ended"))
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "written")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the command was waited for until all that it started had ended, or this could not write")
	}
}

func TestACommandThatFailsIsReported(t *testing.T) {
	limits := patient().Limits
	if err := limits.shell("echo no such device; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: no such device") {
		t.Errorf("error: %v", err)
	}
	limits.Command = time.Millisecond
	if err := limits.shell("sleep 60"); err == nil || !strings.Contains(err.Error(), "did not end within 1ms") {
		t.Errorf("error: %v", err)
	}
}
