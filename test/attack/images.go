// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/image"
)

// Images of an attacker's, which every node has. What a pod requests is in the pod's spec; what
// these request, only the container runtime sees before config.json is written.
const (
	// imageVariable has NVIDIA_VISIBLE_DEVICES=all, as CUDA's images have.
	imageVariable = "localhost/attack-variable:1"
	// imageTwice has the variable twice: first void, then all.
	imageTwice = "localhost/attack-twice:1"
	// imageTwiceReversed has it twice: first all, then void.
	imageTwiceReversed = "localhost/attack-twice-reversed:1"
	// imageBlank has Ascend's, whose runtime compares names without blanks, with one behind its
	// name.
	imageBlank = "localhost/attack-blank:1"
	// imageVendors has every vendor's variable with all, HABANA_VISIBLE_DEVICES twice.
	imageVendors = "localhost/attack-vendors:1"
	// imagePrefixed has AMD's variable with none, and then another one that AMD's runtime obeys.
	imagePrefixed = "localhost/attack-prefixed:1"
	// imageFirst has a variable that Habana's runtime takes for its own, and obeys as the first.
	imageFirst = "localhost/attack-first:1"
	// imagePreferred has a value that an older runtime of Ascend's prefers to later ones.
	imagePreferred = "localhost/attack-preferred:1"
	// imageSockets has a variable by which Ascend's runtime mounts sockets of container runtimes.
	imageSockets = "localhost/attack-sockets:1"
	// imageTwiceArguments has NVIDIA's variable twice with all, and an entry point and arguments.
	imageTwiceArguments = "localhost/attack-twice-arguments:1"
	// imageArguments idles by its own entry point and arguments, which are 128 KiB long.
	imageArguments = "localhost/attack-arguments:1"
	// imageVolume has a volume where NVIDIA's runtime looks for the list of devices, and
	// imageDeclared one below a path that the configuration of the nodes declares.
	imageVolume   = "localhost/attack-volume:1"
	imageDeclared = "localhost/attack-declared:1"
	// imageLimit has the variable by which a device plugin limits its containers, with no limit.
	// imageLimited has it with the plugin's.
	imageLimit   = "localhost/attack-limit:1"
	imageLimited = "localhost/attack-limited:1"
	// imageVolumes has 300 volumes with paths of 3,600 bytes. The runtime mounts each of them.
	imageVolumes = "localhost/attack-volumes:1"
)

// images returns the attacker's images, on top of busybox.
func images(busybox image.Image) []image.Image {
	variables := func(name string, variables ...string) image.Image {
		return busybox.Variant(name, func(config *v1.ImageConfig) {
			config.Env = append(config.Env, variables...)
		})
	}
	volume := func(name, path string) image.Image {
		return busybox.Variant(name, func(config *v1.ImageConfig) {
			config.Volumes = map[string]struct{}{path: {}}
		})
	}
	return []image.Image{
		variables(imageVariable, visibleDevices+"=all"),
		variables(imageTwice, visibleDevices+"=void", visibleDevices+"=all"),
		variables(imageTwiceReversed, visibleDevices+"=all", visibleDevices+"=void"),
		variables(imageBlank, "ASCEND_VISIBLE_DEVICES =0"),
		variables(imageVendors, visibleDevices+"=all", "AMD_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=all",
			"HABANA_VISIBLE_DEVICES=all", "HABANA_VISIBLE_DEVICES=none", "ASCEND_VISIBLE_DEVICES=0"),
		variables(imagePrefixed, "AMD_VISIBLE_DEVICES=none", "DOCKER_RESOURCE_GPU=all"),
		variables(imageFirst, "HABANA_VISIBLE_DEVICES_=all"),
		variables(imagePreferred, "ASCEND_VISIBLE_DEVICES=Ascend910-0"),
		variables(imageSockets, socketsVariable+"=1"),
		variables(imageLimit, "ATTACK_LIMIT=none"),
		variables(imageLimited, "ATTACK_LIMIT=1"),
		volume(imageVolume, "/var/run/nvidia-container-devices/all"),
		volume(imageDeclared, unlistedMounts+"/0"),
		busybox.Variant(imageTwiceArguments, func(config *v1.ImageConfig) {
			config.Env = append(config.Env, visibleDevices+"=all", visibleDevices+"=all")
			config.Entrypoint, config.Cmd = []string{"sh", "-c", "sleep 3600", "sh"}, []string{"--devices", "all"}
		}),
		busybox.Variant(imageVolumes, func(config *v1.ImageConfig) {
			config.Volumes = map[string]struct{}{}
			for i := range 300 {
				config.Volumes[fmt.Sprintf("/v%03d", i)+strings.Repeat("/"+strings.Repeat("x", 239), 15)] = struct{}{}
			}
		}),
		busybox.Variant(imageArguments, func(config *v1.ImageConfig) {
			config.Entrypoint = []string{"sh", "-c", "sleep 3600", "sh"}
			config.Cmd = []string{strings.Repeat("x", 64<<10), strings.Repeat("y", 64<<10)}
		}),
	}
}

// writeImages writes the attacker's images as an archive in a directory, from the programs of the
// clusters, and returns its path.
func writeImages(ctx context.Context, programs, dir string) (string, error) {
	path := filepath.Join(programs, binaries.Busybox)
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	applets, err := exec.CommandContext(ctx, path, "--list-full").Output()
	if err != nil {
		return "", fmt.Errorf("list the tools of %s: %w", path, err)
	}
	archive, err := os.Create(filepath.Join(dir, "images.tar"))
	if err != nil {
		return "", err
	}
	defer archive.Close() //nolint:errcheck // closed below; a second time does no harm
	busybox := image.NewBusybox(program, string(applets))
	if err := image.WriteArchive(archive, runtime.GOARCH, images(busybox)...); err != nil {
		return "", err
	}
	return archive.Name(), archive.Close()
}
