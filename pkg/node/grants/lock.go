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

// lockRetry is the pause between two attempts to take the lock.
const lockRetry = 20 * time.Millisecond

// ErrInUse is wrapped by the error of Hold while another process has the checkpoint.
var ErrInUse = errors.New("a kubecri has the checkpoint of granted devices")

// Hold keeps every other process from the checkpoint at path, whose directory must exist, until the
// returned lock is closed or the process ends. It does not wait: while a kubecri has the
// checkpoint, it fails with ErrInUse.
func Hold(path string) (io.Closer, error) { return tryLock(path) }

// lock waits for the lock on the checkpoint at path until ctx is done. During a hand-over two
// kubecri run for a moment, but only one of them has the checkpoint.
func lock(ctx context.Context, path string) (*os.File, error) {
	for {
		file, err := tryLock(path)
		if !errors.Is(err, ErrInUse) {
			return file, err
		}
		timer := time.NewTimer(lockRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("lock the checkpoint of granted devices: another kubecri still has %s.lock: %w",
				path, context.Cause(ctx))
		}
	}
}

func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		if err = flock(file); err == nil {
			return file, nil
		}
		file.Close() //nolint:errcheck // nothing is written to a lock
	}
	return nil, fmt.Errorf("lock the checkpoint of granted devices: %w", err)
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%s: %w", file.Name(), ErrInUse)
		}
		return err
	}
}
