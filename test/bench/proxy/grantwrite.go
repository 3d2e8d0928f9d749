// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// grantWrites is how long it took to grant a pod a device, and to replace a file of the same
// content as plainly as one can so that it survives a power failure: write, fsync, rename, and
// fsync of the directory; and without the last. All sorted.
type grantWrites struct {
	pin, bare, bareFile []time.Duration
}

// emptyRuntime is one on which nothing runs.
type emptyRuntime struct{}

func (emptyRuntime) Pods(context.Context) (map[string]grants.RuntimeState, error) { return nil, nil }

// measureGrantWrites fills the record of a node of eight devices, again and again. The writes take
// turns.
func measureGrantWrites(ctx context.Context, scratch string) (*grantWrites, error) {
	ctx = klog.NewContext(ctx, klog.Background())
	const records, devices = 40, 8
	w := &grantWrites{}
	has := func(types.ResourceName) (int64, bool) { return 1, true }
	for i := range records {
		dir := filepath.Join(scratch, fmt.Sprintf("grants-%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "grants")
		record := grants.New(grants.Options{
			Path: path, Runtime: emptyRuntime{}, Pods: activePods{},
		})
		if err := record.Reconcile(ctx); err != nil {
			return nil, err
		}
		for device := range devices {
			uid := fmt.Sprintf("%s-%d", devicePod, device)
			wanted := grants.Allocation{PodUID: uid, Namespace: "default", Name: uid, PodInfo: allocation(uid, device)}
			began := time.Now()
			if _, err := record.Grant(ctx, wanted, has); err != nil {
				return nil, err
			}
			w.pin = append(w.pin, time.Since(began))
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			began = time.Now()
			if err := replaceFile(filepath.Join(dir, "bare"), content); err != nil {
				return nil, err
			}
			w.bareFile = append(w.bareFile, time.Since(began))
			began = time.Now()
			if err := replaceFile(filepath.Join(dir, "bare"), content); err != nil {
				return nil, err
			}
			if err := syncDir(dir); err != nil {
				return nil, err
			}
			w.bare = append(w.bare, time.Since(began))
		}
		if err := record.Close(); err != nil {
			return nil, err
		}
	}
	slices.Sort(w.pin)
	slices.Sort(w.bare)
	slices.Sort(w.bareFile)
	return w, nil
}

func replaceFile(path string, content []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func syncDir(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close() //nolint:errcheck // opened for reading
	return directory.Sync()
}

// activePods are pods of the API server.
type activePods struct{}

// Active implements grants.Pods.
func (activePods) Active(string) bool { return true }
