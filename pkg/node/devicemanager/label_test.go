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
			var mu sync.Mutex
			labeled := map[string]string{}
			m.labels = labels{
				enabled: func() bool { return test.enabled },
				set: func(path, label string) error {
					mu.Lock()
					defer mu.Unlock()
					labeled[path] = label
					if _, err := os.Lstat(path); err != nil {
						t.Errorf("a directory is labeled before it is made: %v", err)
					}
					return test.err
				},
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { m.Run(ctx) })
			eventually(t, m.Check)
			eventually(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				_, err := os.Lstat(m.options.RegistryDir)
				if err == nil && len(labeled) < test.labeled {
					err = fmt.Errorf("labeled %v", labeled)
				}
				return err
			})
			cancel()
			running.Wait()

			if len(labeled) != test.labeled {
				t.Errorf("labeled %v", labeled)
			}
			for path, label := range labeled {
				if label != "system_u:object_r:container_file_t:s0" {
					t.Errorf("%s is labeled %s", path, label)
				}
			}
		})
	}
}
