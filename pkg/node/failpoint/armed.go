//go:build failpoint

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Enabled says that this program is no release.
const Enabled = true

// Variable is the environment variable that names the file. The file has a point and a number, such
// as "written 3": the process ends the third time that the point is reached from then on, also if
// it was started again in between. The file is removed right before that, so that its writer sees
// that it happened, and the next process does not end.
const Variable = "KUBECRI_FAILPOINT"

// reaching orders the goroutines that reach points.
var reaching sync.Mutex

// Reach ends the process without warning if the file says so.
func Reach(point Point) {
	path := os.Getenv(Variable)
	if path == "" {
		return
	}
	reaching.Lock()
	defer reaching.Unlock()
	raw, err := os.ReadFile(path)
	if err != nil {
		return // no file: nothing is to happen
	}
	var named Point
	var times int
	if _, err := fmt.Sscanf(string(raw), "%s %d", &named, &times); err != nil || named != point {
		return
	}
	if times > 1 {
		must(os.WriteFile(path, fmt.Appendf(nil, "%s %d\n", named, times-1), 0o600))
		return
	}
	if os.Remove(path) != nil {
		return // its writer took it back
	}
	must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	select {} // the signal is sent; nothing may happen after the point
}

func must(err error) {
	if err != nil {
		panic(fmt.Errorf("failpoint: %w", err))
	}
}
