// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The exporter prints who holds which device of its node, as the exporters of vendors find it out:
// it queries the kubelet, as far as it knows.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const kubelet = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := export(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// export prints a line for each device: namespace, pod, container, resource and ID.
func export(ctx context.Context) error {
	conn, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := podresourcesapi.NewPodResourcesListerClient(conn).List(ctx,
		&podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				for _, id := range device.GetDeviceIds() {
					fmt.Println(pod.GetNamespace(), pod.GetName(), container.GetName(), device.GetResourceName(), id)
				}
			}
		}
	}
	return nil
}
