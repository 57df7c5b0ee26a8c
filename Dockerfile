# nmt-serve with one model, mounted at /model:
#
#     docker build --tag nmt .
#     docker run --publish 8000:8000 --volume "$PWD/runs/en-de:/model:ro" nmt
#
# For NVIDIA GPUs, with torch's CUDA build, which brings the CUDA libraries:
#
#     docker build --tag nmt:cuda --build-arg TORCH=cu130 .
#     docker run --gpus all --publish 8000:8000 --volume "$PWD/runs/en-de:/model:ro" nmt:cuda
#
# Other commands: docker run --rm --volume "$PWD:/work" --workdir /work nmt nmt-train ...
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:${PYTHON}-slim
ARG TORCH=cpu
COPY constraints.txt /constraints.txt
RUN python -m pip install --no-cache-dir --index-url "https://download.pytorch.org/whl/$TORCH" "$(grep '^torch==' /constraints.txt)"
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[serve]"
RUN useradd --create-home nmt
USER nmt
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD ["nmt-serve", "--path", "/model", "--host", "0.0.0.0"]
