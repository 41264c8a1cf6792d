# docker build -t marginalis .
# docker run --rm -v "$PWD:/work" marginalis free-energy model.uai
FROM python:3.13-slim
COPY . /src
RUN pip install --no-cache-dir "/src[io]" && rm -r /src
# Compiled kernels are kept here, whoever runs the container.
ENV NUMBA_CACHE_DIR=/var/cache/marginalis
RUN mkdir -m 1777 /var/cache/marginalis
WORKDIR /work
ENTRYPOINT ["marginalis"]
CMD ["--help"]
