// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts an etcd on a free port and returns its address.
func startEtcd(ctx context.Context, dir string) (address string, stop func(), err error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.UnsafeNoFsync = true // the data is gone with the test anyway
	config.LogLevel = "warn"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return "http://" + etcd.Clients[0].Addr().String(), etcd.Close, nil
	case err := <-etcd.Err():
		etcd.Close()
		return "", nil, fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		etcd.Close()
		return "", nil, fmt.Errorf("start etcd: %w", context.Cause(ctx))
	}
}
