// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is the pause between two tries to take the lock.
const lockRetry = 20 * time.Millisecond

// ErrInUse is wrapped by the error of Hold when another process has the record.
var ErrInUse = errors.New("a kubecri has the record of grants")

// Hold keeps every other process from the record at path, whose folder must exist, until the returned lock is closed or the
// process ends. It does not wait: a kubecri that has the record makes it fail with ErrInUse.
func Hold(path string) (io.Closer, error) {
	file, err := openLock(path)
	if err != nil {
		return nil, err
	}
	taken, err := take(file)
	if err == nil && !taken {
		err = fmt.Errorf("lock %s: %w", file.Name(), ErrInUse)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// lock takes the lock on the record at path. During a hand-over from one process to the next both run for a moment, but only
// one of them has the record: the other waits, until ctx is done. The lock goes with the process.
func lock(ctx context.Context, path string) (*os.File, error) {
	file, err := openLock(path)
	if err != nil {
		return nil, err
	}
	for {
		taken, err := take(file)
		if taken {
			return file, nil
		}
		if err != nil {
			file.Close()
			return nil, err
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

func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the record of grants: %w", err)
	}
	return file, nil
}

// take tries once to lock file and reports whether it is locked now.
func take(file *os.File) (bool, error) {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("lock the record of grants: %w", err)
		}
	}
}
