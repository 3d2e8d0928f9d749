// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// talkative is a device plugin that tells more than a node's annotation can hold.
type talkative struct{ oneGPU }

func (talkative) UpdateNodeInfo(info *types.NodeInfo) error {
	for i := range 10_000 {
		info.Capacity[types.ResourceName(fmt.Sprintf("resource/group/gpu/GPU-%032d/cards", i))] = 1
	}
	return nil
}

func TestAPluginThatReportsTooMuchIsInEventsAndHealth(t *testing.T) {
	dir := t.TempDir()
	upstream, err := criproxy.Dial(filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	options := standalone(dir)
	options.loadPlugins = func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return []pluginload.Loaded[device.Device]{{Name: "talkative", Plugin: talkative{}}}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := newNode(ctx, options, "", upstream)
	defer n.wait(ctx)
	defer cancel()
	client := fake.NewClientset()
	sent := make(chan *corev1.Event, 10)
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		sent <- event
		return true, event, nil
	})
	n.events.sendTo(client)
	n.running.Go(func() { n.files.Run(ctx) })
	n.running.Go(func() { n.plugins.Run(ctx) })
	n.running.Go(func() { n.adoption.Run(ctx) })
	n.running.Go(func() { n.followInventory(ctx) })
	select {
	case event := <-sent:
		if event.Reason != reasonNotPublished || event.InvolvedObject.Kind != "Node" ||
			event.InvolvedObject.Name != "node-1" ||
			!strings.Contains(event.Message, `"talkative"`) || !strings.Contains(event.Message, "use at most 262144") {
			t.Errorf("got %v", event)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is reported after 20s")
	}
	if err := n.plugins.Check(); err == nil || !strings.Contains(err.Error(), "talkative") {
		t.Errorf("health says %v", err)
	}
}
