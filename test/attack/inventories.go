// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/observe"
)

// changeNode makes a request that changes the annotations of a node. It succeeds if they stay
// changed.
func changeNode(ctx context.Context, p *trial, arguments struct {
	Node string     `json:"node"`
	By   apiRequest `json:"by"`
}) (Got, error) {
	node := arguments.Node
	before, err := p.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	answer, err := p.send(ctx, arguments.By)
	if err != nil {
		return Got{}, err
	}
	var patched corev1.Node
	if err := json.Unmarshal(answer, &patched); err != nil {
		return Got{}, err
	}
	// kubecri undoes it at once.
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	_, err = p.admin.AwaitNode(ctx, node, "to have its inventory back", func(now *corev1.Node) bool {
		newer, err := resourceversion.CompareResourceVersion(now.ResourceVersion, patched.ResourceVersion)
		same := func(key string) bool { return now.Annotations[key] == before.Annotations[key] }
		return err == nil && newer > 0 && same(deviceinfo.Annotation) && same(deviceinfo.HoldersAnnotation) &&
			same(deviceinfo.ReplacementsAnnotation) && same(deviceinfo.UnhealthyAnnotation) &&
			same(deviceinfo.AttributesAnnotation) && same(deviceinfo.RequiredPluginAnnotation)
	})
	if wait.Interrupted(err) || errors.Is(err, context.DeadlineExceeded) {
		return Got{Succeeds, fmt.Sprintf("the inventory of %s stays changed", node)}, nil
	}
	return Got{NoEffect, "the inventory is as it was"}, err
}

// renameGPUs has the GPUs of the node scheduled be another vendor's until the attempt ends, by the
// name of the resource that counts them.
func renameGPUs(ctx context.Context, p *trial, name string) (Got, error) {
	const own = string(observe.Resource)
	node, file := p.node(scheduled).Name, inventoryFile(p.run.dir, scheduled)
	rename := func(ctx context.Context, from, to string) error {
		content := inventory(devices[scheduled]) + "resourceName: " + to + "\n"
		next := file + ".next" // kubecri may read the file at any time
		if err := errors.Join(os.WriteFile(next, []byte(content), 0o644), os.Rename(next, file)); err != nil {
			return err
		}
		_, err := p.admin.AwaitNode(ctx, node, "to count "+to+" alone", func(now *corev1.Node) bool {
			before := now.Status.Allocatable[corev1.ResourceName(from)]
			after := now.Status.Allocatable[corev1.ResourceName(to)]
			return before.IsZero() && !after.IsZero()
		})
		return err
	}
	p.undo = append(p.undo, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		return rename(ctx, name, own)
	})
	return Got{}, rename(ctx, own, name)
}

// letGroupLabelNodes gives a group the rights of a Labeller.
func letGroupLabelNodes(ctx context.Context, p *trial, group string) (Got, error) {
	if _, err := p.labeller(ctx); err != nil {
		return Got{}, err
	}
	if err := p.bindEverywhere(ctx, p.namespace+"-labeller",
		[]rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}}); err != nil {
		return Got{}, err
	}
	named, err := p.admin.As("anybody", group)
	if err != nil {
		return Got{}, err
	}
	return Got{}, named.AwaitRights(ctx, patchNodes)
}

// undoTimeout is how long a change of a node may stay, or may not have been seen.
const undoTimeout = 20 * time.Second
