// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"strings"

	"github.com/kubedevice/kubedevice/test/await"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hasAnnotation succeeds if the pod that was created last has an annotation with this prefix.
func hasAnnotation(ctx context.Context, p *trial, prefix string) (Got, error) {
	now, err := p.admin.CoreV1().Pods(p.namespace).Get(ctx, p.created.Name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	for key, value := range now.Annotations {
		if strings.HasPrefix(key, prefix) {
			return Got{Succeeds, "the pod has " + key + "=" + value}, nil
		}
	}
	return Got{NoEffect, "the pod has no such annotation"}, nil
}

// awaitPodOfJob waits until a Job has created its pod, unless the API server refuses it.
func awaitPodOfJob(ctx context.Context, p *trial, name string) (got Got, err error) {
	job, err := p.admin.BatchV1().Jobs(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	err = await.Until(ctx, "a pod of job "+name, func(ctx context.Context) (bool, error) {
		pods, err := p.admin.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		if len(pods.Items) > 0 {
			p.created = &pods.Items[0]
			return true, nil
		}
		events, err := p.admin.CoreV1().Events(p.namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(job.UID)})
		if err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if event.Reason == "FailedCreate" {
				got = Got{RefusedByAPIServer, event.Message}
			}
		}
		return got.Outcome != "", nil
	})
	return got, err
}
