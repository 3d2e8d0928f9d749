// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// errNotStarted is the state of a plugin before its Start was tried.
var errNotStarted = errors.New("not started yet")

// plugin is the plugin of a file and what it last told.
type plugin struct {
	name   string
	device device.Device
	deny   map[string]string // see device.Isolator
	caller *plugincall.Caller

	mu    sync.Mutex
	asked bool            // Start or UpdateNodeInfo has had its first outcome
	info  *types.NodeInfo // the last good UpdateNodeInfo; nil before. Never changed once set
	err   error           // the last outcome of Start or UpdateNodeInfo
}

var _ source = (*plugin)(nil)

func (p *plugin) label() string { return p.name }

func (p *plugin) denyEnvs() map[string]string { return p.deny }

// run starts the plugin, again and again if need be, and then asks it for its devices every interval until ctx is done.
// It calls changed when the plugin's state is another than before.
func (p *plugin) run(ctx context.Context, nodeName string, timing Timing, changed func()) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "plugin", p.name)
	ctx = klog.NewContext(ctx, logger)
	retry := startBackoff(timing.Interval)
	for {
		_, err := plugincall.Do(ctx, p.caller, plugincall.Call{Method: "Start", Limit: timing.Start},
			func() (struct{}, error) { return struct{}{}, p.device.Start() })
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if p.settle(nil, err) {
			logger.Error(err, "A device plugin does not start; it offers no devices and is tried again")
			changed()
		}
		if !sleep(ctx, retry.Step()) {
			return
		}
	}
	logger.V(2).Info("Started a device plugin")
	for {
		info, err := p.ask(ctx, nodeName, timing.Update)
		if ctx.Err() != nil {
			return
		}
		if p.settle(info, err) {
			if err != nil {
				logger.Error(err, "A device plugin does not tell its devices; those that it told before stay")
			}
			changed()
		}
		if !sleep(ctx, timing.Interval) {
			return
		}
	}
}

// startBackoff returns the pauses between tries of Start.
func startBackoff(first time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: 0.1, Steps: math.MaxInt, Cap: time.Minute}
}

// ask returns what the plugin has now.
func (p *plugin) ask(ctx context.Context, nodeName string, limit time.Duration) (*types.NodeInfo, error) {
	info, err := plugincall.Do(ctx, p.caller, plugincall.Call{Method: "UpdateNodeInfo", Limit: limit}, func() (*types.NodeInfo, error) {
		info := types.NewNodeInfoWithName(nodeName)
		err := p.device.UpdateNodeInfo(info)
		// The plugin may have kept info.
		return info.Clone(), err
	})
	if err != nil {
		return nil, err
	}
	if _, err := deviceinfo.EncodeNode(info); err != nil {
		return nil, fmt.Errorf("device plugin %q: what it tells of the node cannot be published: %w", p.name, err)
	}
	if err := checkExtended(info); err != nil {
		return nil, fmt.Errorf("device plugin %q: %w", p.name, err)
	}
	return info, nil
}

// settle notes an outcome and reports whether it is another than the one before. info is nil when there is none.
func (p *plugin) settle(info *types.NodeInfo, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !p.asked || !sameText(p.err, err)
	p.asked, p.err = true, err
	if info != nil && (p.info == nil || !equalInfo(p.info, info)) {
		p.info = info
		changed = true
	}
	return changed
}

func (p *plugin) state() (info *types.NodeInfo, asked bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info, p.asked, p.err
}

func equalInfo(a, b *types.NodeInfo) bool {
	return maps.Equal(a.Capacity, b.Capacity) && maps.Equal(a.Allocatable, b.Allocatable) && maps.Equal(a.Used, b.Used) &&
		maps.Equal(a.Scorer, b.Scorer) && maps.Equal(a.KubeCap, b.KubeCap) && maps.Equal(a.KubeAlloc, b.KubeAlloc)
}

func sameText(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// sleep waits for d and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
