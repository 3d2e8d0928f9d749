# The programs of an image are started under an emulator: $1 is the emulator, $2 the image's root, $3 the machine in ELF files of
# its architecture. It runs in user, mount and PID namespaces of its own, so that the kernel knows the emulator here alone.
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
# The first 20 bytes of a program or library of 64 bits, little endian, of this machine. F keeps the emulator open, so that it
# need not be in the root.
printf '%s' ':other:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00'"$3"'\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1"':F' \
  >/proc/sys/fs/binfmt_misc/register
mkdir -p "$2/proc" "$2/dev" "$2/tmp"
mount -t proc proc "$2/proc"
mount --rbind /dev "$2/dev"

run() {
  echo "+ $*"
  timeout 300 chroot "$root" "$@"
}
root=$2
run /kubecri --version
run /kubecri plugin check /usr/local/KubeExt/devices/nvidiagpu.so /usr/local/KubeExt/simulated/simgpu.so
run /kubecri plugin check /schedulerplugins/nvidiagpu.so
run /kube-scheduler --version
