// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// sharesOfEach is how often NVIDIA's plugin offers each GPU here.
const sharesOfEach = 2

// NVIDIA's plugin offers shares of GPUs at the kubelet, which gives one to a pod, and then moves to
// kubecri. The pod keeps its share. The next pod has shares of as many GPUs as it requests, of
// those first of which no pod has a share; and when all shares are held, none is held twice.
func TestSharesOfTheKubeletsAreKeptAndOthersAreSpreadWhenTheirPluginMovesToKubecri(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	n.share(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	const all = sharesOfEach * vendors.GPUs
	old, held := n.takeOver(ctx, t, namespace, 1)
	whole := func(share string) string {
		gpu, _, _ := strings.Cut(share, "::")
		return gpu
	}

	spread := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "spread", limits{gpus: vendors.GPUs - 1})))
	has := map[string]bool{}
	holders := map[string]string{}
	for _, share := range expectDevices(ctx, t, spread)[gpus] {
		has[whole(share)], holders[share] = true, spread.Name
	}
	if len(has) != vendors.GPUs-1 || has[whole(held[0][gpus][0])] {
		t.Errorf("the next pod has shares of the GPUs %v, and another pod has one of %q", has, held[0][gpus])
	}
	for i := range all - vendors.GPUs {
		pod := n.run(ctx, t, namespace, fmt.Sprintf("one-%d", i))
		for _, share := range expectDevices(ctx, t, pod)[gpus] {
			if holders[share] != "" {
				t.Errorf("the pods %s and %s both have %s", holders[share], pod.Name, share)
			}
			holders[share] = pod.Name
		}
	}
	for _, device := range n.Plugin(nvidia).Devices {
		if holders[device.ID] == "" { // it is the only one left
			holders[device.ID] = old[0].Name
			if whole(device.ID) != whole(held[0][gpus][0]) {
				t.Errorf("share %s is left, and pod %s uses %q", device.ID, old[0].Name, held[0][gpus])
			}
		}
	}
	n.expectHeld(ctx, t, namespace, holders)
}

// share has NVIDIA's plugin offer shares until the test ends.
func (n *node) share(ctx context.Context, t *testing.T) {
	t.Helper()
	exclusive := n.Plugin(nvidia)
	shares, err := n.TimeSliced(sharesOfEach)
	if err != nil {
		t.Fatal(err)
	}
	n.setPlugin(shares)
	t.Cleanup(func() {
		n.setPlugin(exclusive)
		if err := n.move(context.WithoutCancel(ctx), nvidia, kubecriDirectory); err != nil {
			t.Error(err)
		}
	})
}
