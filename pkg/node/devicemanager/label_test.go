// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// fakeLabels notes the labels that are set.
type fakeLabels struct {
	enabled bool
	err     error // of SetFileLabel

	mu      sync.Mutex
	labeled map[string]string // by path
}

func (f *fakeLabels) Enabled() bool { return f.enabled }

func (f *fakeLabels) SetFileLabel(path, label string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.labeled[path] = label
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return f.err
}

func (f *fakeLabels) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.labeled)
}

func TestContainersMayRegisterPluginsUnderSELinux(t *testing.T) {
	for name, test := range map[string]struct {
		enabled bool
		err     error
		labeled int
	}{
		"where it is on":             {enabled: true, labeled: 2},
		"where it is off":            {},
		"where it cannot be changed": {enabled: true, err: errors.New("read-only file system"), labeled: 2},
	} {
		t.Run(name, func(t *testing.T) {
			directory := tempDirectory(t)
			m := New(Options{
				Dir: filepath.Join(directory, DirName), RegistryDir: filepath.Join(directory, RegistryDirName),
				StateFile: filepath.Join(directory, StateFileName),
			})
			fake := &fakeLabels{enabled: test.enabled, err: test.err, labeled: map[string]string{}}
			m.labels = fake
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { m.Run(ctx) })
			eventually(t, m.Check)
			eventually(t, func() error {
				_, err := os.Lstat(m.options.RegistryDir)
				if count := fake.count(); err == nil && count < test.labeled {
					err = fmt.Errorf("%d directories are labeled", count)
				}
				return err
			})
			cancel()
			running.Wait()

			if len(fake.labeled) != test.labeled {
				t.Errorf("labeled %v", fake.labeled)
			}
			for path, label := range fake.labeled {
				if label != "system_u:object_r:container_file_t:s0" {
					t.Errorf("%s is labeled %s", path, label)
				}
			}
		})
	}
}
