// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is the pause between two tries to take the lock.
const lockRetry = 20 * time.Millisecond

// lock takes the lock on the record at path. During a hand-over from one process to the next both run for a moment, but only
// one of them has the record: the other waits, until ctx is done. The lock goes with the process.
func lock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the record of grants: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock the record of grants: %w", err)
		}
		timer := time.NewTimer(lockRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			file.Close()
			return nil, fmt.Errorf("lock the record of grants: another kubecri still has %s: %w", path, context.Cause(ctx))
		}
	}
}
